"""How numbers are written in a file: with which decimal sign, and what between thousands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from headwater.spark.ingest.convert import SPACES

_NAMED = r"[+-]?(?i:nan|inf|infinity)"
# 12e4 may be a number, and is as likely a part of a hexadecimal one.
_BARE_EXPONENT = re.compile(r"\d+[eE]\d+")


@dataclass(frozen=True)
class Numerals:
    """A way to write numbers: `decimal` and `thousands` as in the options of a mapping."""

    decimal: str = "."
    thousands: str = ""

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        return re.compile(rf"[+-]?(?:0|[1-9]\d*|{self._grouped})\Z")

    @cached_property
    def _number(self) -> re.Pattern[str]:
        d = re.escape(self.decimal)
        exponent = r"(?:[eE][+-]?\d+)?"
        return re.compile(
            rf"(?:[+-]?(?:0|[1-9]\d*|{self._grouped})(?:{d}\d*)?{exponent}|[+-]?{d}\d+{exponent}|{_NAMED})\Z"
        )

    @property
    def _grouped(self) -> str:
        if not self.thousands:
            return "0"
        signs = SPACES if self.thousands in SPACES else self.thousands
        return rf"[1-9]\d{{0,2}}(?:[{re.escape(signs)}]\d{{3}})+"

    def are_whole(self, texts: Iterable[str]) -> bool:
        return all(self._whole.match(text) for text in texts)

    def are_numbers(self, texts: Sequence[str]) -> bool:
        """Whether all are numbers, and at least one is not only the name of one."""
        return all(self._number.match(text) for text in texts) and any(text[-1:].isdigit() for text in texts)

    def value(self, text: str) -> float:
        return float(self._plain(text))

    def whole(self, text: str) -> int:
        return int(self._plain(text))

    def _plain(self, text: str) -> str:
        signs = SPACES if self.thousands and self.thousands in SPACES else self.thousands
        for sign in signs:
            text = text.replace(sign, "")
        return text.replace(self.decimal, ".")


PLAIN = Numerals()
_ENGLISH, _SPACED = Numerals(".", ","), Numerals(".", " ")
_COMMA, _GERMAN, _FRENCH = Numerals(",", ""), Numerals(",", "."), Numerals(",", " ")
_SWISS, _TYPOGRAPHIC = Numerals(".", "'"), Numerals(".", "\u2019")


def find_numerals(columns: Sequence[Sequence[str]], delimiter: str) -> Numerals:
    """The way by which most columns are numbers. Where it can be one or the other, 1,029 is more than a thousand if
    cells are parted by commas, else one and a bit."""
    commas = (_ENGLISH, _COMMA, _GERMAN) if delimiter == "," else (_COMMA, _GERMAN, _ENGLISH)
    best, most = PLAIN, 0
    for each in (PLAIN, *commas, _SPACED, _FRENCH, _SWISS, _TYPOGRAPHIC):
        count = sum(1 for texts in columns if each.are_numbers(texts))
        if count > most:
            best, most = each, count
    return best


def is_ambiguous(texts: Iterable[str]) -> bool:
    """Whether a comma in these texts may be one or the other."""
    return all(re.fullmatch(r"[+-]?[1-9]\d{0,2}(?:,\d{3})?", text) for text in texts)


def may_be_hexadecimal(texts: Iterable[str]) -> bool:
    """Whether some have an exponent and nothing else that is a number's only: a point, a sign."""
    found = list(texts)
    return any(_BARE_EXPONENT.fullmatch(text) for text in found) and not any(
        sign in text for text in found for sign in ".,+-"
    )
