"""What the notations share: the limits on a text, and errors that point into it.

Nothing here knows a notation.
"""

from __future__ import annotations

from headwater.errors import InterestError, InterestRefused
from headwater.ir.nodes import Span
from headwater.ir.notes import MAX_DEPTH, MAX_TEXT, locate

MAX_RECOVERED = 20_000  # characters of a text that is looked at further after a syntax error

NESTED = f"this nests deeper than {MAX_DEPTH}"
NESTED_HINT = "split it into simpler parts"


def syntax_error(text: str, span: Span, message: str, **more: str | None) -> InterestError:
    """One problem that ends the reading of a text."""
    return InterestError([locate(text, span, message, **more)])


def refusal(text: str, span: Span, message: str, **more: str | None) -> InterestRefused:
    """The text may be sound, but is too much of it."""
    return InterestRefused([locate(text, span, message, **more)], "this interest is refused")


def too_deep(text: str, span: Span) -> InterestRefused:
    """The refusal of a text that is nested too deeply."""
    return refusal(text, span, NESTED, hint=NESTED_HINT)


def check_text(text: object, what: str) -> str:
    """The text itself, if it is one and not too long."""
    if not isinstance(text, str):
        raise syntax_error("", Span(0, 0), f"{what}", expected="a str", found=type(text).__name__)
    if len(text) > MAX_TEXT:
        raise refusal(
            text[:200],
            Span(0, 0),
            f"{what} is too long",
            expected=f"at most {MAX_TEXT:,} characters",
            found=f"{len(text):,}",
            hint="put long lists of values into set parameters",
        )
    return text
