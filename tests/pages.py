"""Code on the pages, and running it as a reader would: block after block, in one folder and one namespace.

What follows the language of a block says more about it:

    ```python                        is run
    ```python no-run: REASON         is not; pages may have few of these
    ```sh                            each `headwater …` in it is run
    ```sh no-run: REASON             each is only read: the command and its options must be there
    ```toml visits.toml              is a file of that name, there from the beginning

A comment behind a statement that prints or publishes is what is printed, at once or a moment later, by whoever listens:

    print(1 + 1)  # 2
    source.publish(n=3)  # desk: 3
    for n in range(2):
        print(n)
        # 0
        # 1

at the end of its last line, two spaces behind it, or on lines of their own directly below. All of it must have been
printed, as often as it is shown, when the page has been run. What is explained stands in a column of its own, further
to the right, or behind other statements.
"""

from __future__ import annotations

import ast
import doctest
import io
import re
import shlex
import sys
import threading
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from headwater.cli import main, make_parser
from headwater.testing import eventually
from tests.ports import free_port

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NO_RUN = "no-run:"
PORTS = ("7447", "7448")
BEHIND = re.compile(r"\S  $")  # code, before a comment that says what it prints


@dataclass(frozen=True)
class Block:
    """A block of code. `more`: what follows its language."""

    page: str
    line: int
    language: str
    more: str
    text: str

    @property
    def runs(self) -> bool:
        return not self.more.startswith(NO_RUN)

    @property
    def reason(self) -> str:
        return self.more.removeprefix(NO_RUN).strip()

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    """All of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        language, _, more = match[1].strip().partition(" ")
        line = text.count("\n", 0, match.start()) + 2
        found.append(Block(page, line, language, more.strip(), match[2]))
    return found


def pages() -> list[str]:
    return ["README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))]


class Printed(io.TextIOBase):
    """What a page prints, line by line, by whatever thread."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._begun = threading.local()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *whole, rest = (getattr(self._begun, "text", "") + text).split("\n")
        self.lines += whole
        self._begun.text = rest
        return len(text)

    def lack(self, shown: list[str]) -> list[str]:
        """What of these lines was not printed, or not so often."""
        return list((Counter(shown) - Counter(line.strip() for line in list(self.lines))).elements())


def shown_by(text: str) -> list[str]:
    """The lines that a block of Python says are printed: see above."""
    lines = {
        each.end_lineno
        for each in ast.walk(ast.parse(text))
        if isinstance(each, ast.stmt) and not hasattr(each, "body") and any(map(_speaks, ast.walk(each)))
    }
    comments = {
        token.start[0]: (token.line[: token.start[1]], token.string.removeprefix("#").strip())
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }
    found = []
    for line in sorted(line for line in lines if line is not None):
        before, said = comments.get(line, ("", ""))
        if said and BEHIND.search(before):
            found.append(said)
        while line + 1 in comments and not comments[line + 1][0].strip():
            line += 1
            found.append(comments[line][1])
    return found


def _speaks(node: ast.AST) -> bool:
    """Whether it is a call that prints, or publishes."""
    match node:
        case ast.Call(func=ast.Name(id="print")) | ast.Call(func=ast.Attribute(attr="publish" | "publish_many")):
            return True
    return False


def run_page(page: str, folder: Path, *, written: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run what is to be run, in the present folder, which must be this one, and compare what is printed with what the
    page shows. Returns the names that are there at last.

    `written`: what is in the place of some texts. On the pages nodes listen at 7447 and 7448, and at all addresses of a
    machine where there is security: here at free ports of this machine."""
    assert Path.cwd() == folder.resolve()
    ports = {port: str(free_port()) for port in PORTS}
    printed, shown = Printed(), list[str]()
    with _module(page) as module, redirect_stdout(printed):
        for block in blocks(page):
            if block.language == "toml" and block.more:
                (folder / block.more).write_text(block.text, encoding="utf-8")
        try:
            for block in blocks(page):
                text = block.text.replace("0.0.0.0", "127.0.0.1")
                for before, after in {**ports, **(written or {})}.items():
                    text = text.replace(before, after)
                _run(block, text, folder, module)
                if block.language == "python" and block.runs and not text.startswith(">>>"):
                    shown += shown_by(text)
            _compare(page, printed, shown)
        finally:
            _end(module)
        return module.__dict__


def _compare(page: str, printed: Printed, shown: list[str]) -> None:
    try:
        eventually(lambda: not printed.lack(shown))
    except AssertionError:
        raise AssertionError(
            f"{page}: shown and not printed: {printed.lack(shown)}; printed: {printed.lines[-50:]}"
        ) from None


@contextmanager
def _module(page: str) -> Iterator[ModuleType]:
    """What the blocks of a page are parts of: classes look there for the names in their annotations."""
    name = f"page_{re.sub(r'[^a-z]', '_', page.lower())}"
    module = sys.modules[name] = ModuleType(name)
    try:
        yield module
    finally:
        del sys.modules[name]


def _run(block: Block, text: str, folder: Path, module: ModuleType) -> None:
    if block.language == "sh":
        for command, target in commands(text):
            if block.runs:
                said = io.StringIO()
                with redirect_stdout(said):
                    assert main(command) == 0, f"{block}: {shlex.join(command)}"
                if target:
                    (folder / target).write_text(said.getvalue(), encoding="utf-8")
            else:
                make_parser().parse_args(command)
    elif block.language == "python" and block.runs:
        try:
            _run_python(block, text, folder, module)
        except Exception as error:
            error.add_note(f"in {block}")
            raise


def _run_python(block: Block, text: str, folder: Path, module: ModuleType) -> None:
    if text.startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(text, module.__dict__, str(block), block.page, block.line)
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        assert runner.run(test, clear_globs=False).failed == 0, f"{block}: not what it shows"
        return
    path = folder / f"{module.__name__}_{block.line}.py"  # the source of a function is read from its file
    path.write_text(text, encoding="utf-8")
    exec(compile(text, str(path), "exec"), module.__dict__)


def commands(text: str) -> Iterator[tuple[list[str], str | None]]:
    """The arguments of each `headwater` in lines for a shell, and the file that its output goes to, if to any."""
    for line in text.splitlines():
        if not re.search(r"(^|[;$]) *headwater [a-z]", line):
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars="<>;")
        lexer.whitespace_split = True
        words = list(lexer)
        while words:
            at = words.index(";") if ";" in words else len(words)
            command, words = words[:at], words[at + 1 :]
            if not command or command[0] != "headwater":
                continue
            target = None
            for sign in (">", "<"):
                if sign in command:
                    where = command.index(sign)
                    target = command[where + 1] if sign == ">" else target
                    del command[where : where + 2]
            yield command[1:], target


def _end(module: ModuleType) -> None:
    """What a program would end with its process."""
    from headwater import Node

    for value in reversed(list(module.__dict__.values())):
        if isinstance(value, Node):
            value.close(timeout=5.0)
