"""Going on after a syntax error of E-Code: the statement that it is in is left out, blank for blank.

A statement reaches from the `;`, `{` or `}` before it to its own `;`, or to the `{` of its body, which stays. Brackets
are known to match. What may be said of the rest is limited by what was left out: names that were declared there, and
whether a loop or an `if` began there.
"""

from __future__ import annotations

import re

from headwater.errors import Problem
from headwater.lang.ecode_expr import RESERVED
from headwater.lang.ecode_text import blank

_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_NAME = re.compile(r"(?<![\w$.])[A-Za-z_$][\w$]*")  # not a field
_HEADS = {"if", "else", "for", "while", "do", "switch", "case", "default", "break", "continue"}
NOT_C = "this is not C here"
_OF_LOOPS = ("break outside a loop", "continue outside a loop")


class Recovery:
    """A text from which statements are left out; `simple`: nothing else can be wrong only because of that."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.words: set[str] = set()
        self.simple = True

    def leave_out(self, offset: int) -> bool:
        """Leave the statement at an offset out; whether there was one. Of one that begins with `else`, whose `if` was
        left out, only that word."""
        start, end = self._statement(min(offset, len(self.code)))
        gone = self.code[start:end]
        if not gone.strip():
            return False
        first = _WORD.match(gone.lstrip())
        if first is not None and first.group() == "else" and "if" in self.words:
            start = self.code.index("else", start)
            self.code = self.code[:start] + "    " + self.code[start + 4 :]
            return True
        words = set(_WORD.findall(gone))
        self.words |= words
        self.simple = self.simple and gone.rstrip().endswith(";") and not words & _HEADS
        self.code = self.code[:start] + blank(gone) + self.code[end:]
        return True

    def _statement(self, offset: int) -> tuple[int, int]:
        """From its first character to behind its semicolon, or to the brace of its body or around it."""
        depth, start = 0, 0
        for at in range(offset - 1, -1, -1):
            here = self.code[at]
            depth += (here in ")]") - (here in "([")
            if depth <= 0 and (here in "{}" or (here == ";" and not self._in_parentheses(at))):
                start = at + 1
                break
        depth = 0
        for at in range(start, len(self.code)):
            here = self.code[at]
            depth += (here in "([") - (here in ")]")
            if depth == 0 and here == ";":
                return start, at + 1
            if depth == 0 and here in "{}":
                return start, at
        return start, len(self.code)

    def _in_parentheses(self, offset: int) -> bool:
        """Whether a semicolon is one of a `for`."""
        depth = 0
        for at in range(offset - 1, -1, -1):
            here = self.code[at]
            depth += (here == ")") - (here == "(")
            if depth < 0:
                return True
            if here in "{}":
                return False
        return False

    def explains(self, problem: Problem) -> bool:
        """Whether a problem may be one only because of what was left out: about a name of that, a loop, or an if."""
        if problem.message.endswith(_OF_LOOPS):
            return bool(self.words & _HEADS)
        if problem.message == NOT_C:
            return not self.simple
        start = problem.column - 1 if problem.caret is None else problem.caret
        about = set(_NAME.findall(problem.excerpt[start : start + problem.width]))
        return bool((about - set(RESERVED)) & self.words)
