"""Going on after a syntax error of a Python function: the line that it is in is left out.

The head of a block becomes `if True:`, so that its body stays; any other line becomes `pass`. What may be said of the
rest is limited by that: names that were spoken of in the line may have been assigned there.
"""

from __future__ import annotations

import re

from headwater.errors import InterestError, Problem
from headwater.lang.pysource import Source, from_tree, parse_text, plain_text
from headwater.lang.source import MAX_RECOVERED

_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")  # not a field
_ASSIGNED = re.compile(r"^([^=]*)[-+*/%&|^<>]?=(?!=)|\bfor\b(.*?)\bin\b")
_NOT_LEFT_OUT = ("def", "async", "class", "elif", "else", "lambda", "@")


class Recovery:
    """A function from whose text a line is left out; `source` is None where that is of no use."""

    def __init__(self, text: str, problem: Problem) -> None:
        self.assigned: set[str] = set()
        self.loops = False
        self.source: Source | None = None
        text = plain_text(text)
        lines = text.split("\n")
        at = problem.line - 1
        if len(text) > MAX_RECOVERED or not 0 < at < len(lines) or lines[at].lstrip().startswith(_NOT_LEFT_OUT):
            return
        self._read(lines[at])
        indent = len(lines[at]) - len(lines[at].lstrip())
        following = next((line for line in lines[at + 1 :] if line.strip()), "")
        heads = len(following) - len(following.lstrip()) > indent
        kept = [*lines[:at], " " * indent + ("if True:" if heads else "pass"), *lines[at + 1 :]]
        try:
            self.source = from_tree(parse_text("\n".join(kept)), text)
        except InterestError:  # another one, or one of what was left out
            self.source = None

    def _read(self, line: str) -> None:
        for before, between in _ASSIGNED.findall(line):
            self.assigned |= set(_NAME.findall(before or between))
        self.loops = line.lstrip().startswith(("for", "while"))

    def explains(self, problem: Problem) -> bool:
        """Whether a problem may be one only because of what was left out: it is about a name that was assigned there,
        or about what belongs to a loop."""
        start = problem.column - 1 if problem.caret is None else problem.caret
        about = set(_NAME.findall(problem.excerpt[start : start + problem.width]))
        return bool(about & self.assigned) or (self.loops and problem.message == "this is not inside a loop")
