"""Texts in which parts are replaced where they stand, so that places in the result are those in the text."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.ir.nodes import Span


@dataclass(slots=True)
class Edits:
    """Replacements in one text, from left to right."""

    text: str
    found: list[tuple[int, int, str]] = field(default_factory=list)

    def replace(self, start: int, end: int, new: str) -> None:
        """Have something else in the place of what stands there."""
        self.found.append((start, end, new))

    def apply(self, span: Span, gaps: list[Span]) -> str:
        """As long as the text was, unless something had to be put in that was longer than what had stood there: then
        the next gaps between words are narrower. Comments are gaps too."""
        edits = [(start, -end, new, 0) for start, end, new in self.found]
        edits += [(gap.start, -gap.end, "", self._least(gap)) for gap in gaps]
        out, at, debt = list[str](), span.start, 0
        for start, end, new, least in [*sorted(edits), (span.end, -span.end, "", 0)]:
            if start < at:  # a gap within what was replaced
                continue
            room = -end - start - len(new)
            paid = min(debt, max(0, room - least))
            debt += max(0, -room) - paid
            out += [self.text[at:start], new, " " * max(0, room - paid)]
            at = -end
        return "".join(out)

    def _least(self, gap: Span) -> int:
        """Blanks that two words need between them to be two."""
        return int(_of_word(self.text[gap.start - 1]) and _of_word(self.text[gap.end]))


def _of_word(character: str) -> bool:
    return character.isalnum() or character in "_'\"`"
