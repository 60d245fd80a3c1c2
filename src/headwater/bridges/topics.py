"""Topics of other systems, as templates whose segments are fields of events.

    building/{floor}/{room}/temperature      of MQTT, with / between segments
    building.{floor}.{room}.temperature      of NATS, with .
    sensors/{path...}                        the last field takes all segments that are left, one at least

A template is three things: a pattern to subscribe to (`building/+/+/temperature`), a reader of topics, which gives the
texts of fields, and a writer, which makes a topic of an event. A field that is no segment (with a separator, a wildcard
or a control character in it, or nothing) is an error, never another topic.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.errors import ConfigError, ConfigProblem, EncodeError

MAX_BYTES = 65_535  # of a topic, as MQTT has it
NATS_BYTES = 3_900  # and as NATS: a server ends a connection that says a line of more than 4,096, with sizes and all
MAX_SEGMENTS = 128
_FIELD = re.compile(r"\{([A-Za-z_]\w*)(\.\.\.)?\}")
# Control characters, and those that Unicode has for no text: a broker may end the connection that says one.
_NONE = "".join(f"{chr(plane | 0xFFFE)}{chr(plane | 0xFFFF)}" for plane in range(0, 0x11_0000, 0x1_0000))
_CONTROL = re.compile(f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{_NONE}]")


@dataclass(frozen=True, slots=True)
class TopicSyntax:
    """How a system writes its topics."""

    name: str
    separator: str
    one: str  # any one segment, in a subscription
    rest: str  # all that are left
    empty: bool  # whether a segment may be empty
    reserved: str  # characters that no segment has
    most: int = MAX_BYTES  # of a topic
    own: tuple[str, ...] = ("$",)  # with which topics of the broker itself begin

    def is_segment(self, text: str) -> bool:
        """Whether a text may stand between two separators."""
        if not text:
            return self.empty
        if not _encodes(text):
            return False
        return not any(character in text for character in self.reserved) and _CONTROL.search(text) is None


MQTT = TopicSyntax("MQTT", "/", "+", "#", True, "/+#")
NATS = TopicSyntax("NATS", ".", "*", ">", False, ".*> \t", NATS_BYTES, ("$", "_INBOX"))
SHARED = "$share"  # and with which a subscription of MQTT says that it shares its messages with others


@dataclass(frozen=True, slots=True)
class Segment:
    """A literal text, or a field."""

    text: str
    field: bool = False
    rest: bool = False  # it takes all that are left


class Topic:
    """A template; equal texts of one syntax are equal templates."""

    __slots__ = ("_segments", "fields", "syntax", "text")

    def __init__(self, text: str, syntax: TopicSyntax) -> None:
        """ConfigError, with all that is wrong with it."""
        self.text, self.syntax = text, syntax
        problems: list[ConfigProblem] = []
        place = f"topic {text!r}"
        if not isinstance(text, str) or not text or len(text.encode(errors="replace")) > syntax.most:
            raise ConfigError([ConfigProblem(place, f"a topic of 1 to {syntax.most:,} bytes", "another")])
        # Dots are in the braces of a rest, and may be the separator.
        parts = [each.replace("\0", "...") for each in text.replace("...}", "\0}").split(syntax.separator)]
        self._segments = tuple(_segment(part, syntax, place, problems) for part in parts)
        self.fields = tuple(each.text for each in self._segments if each.field)
        if len(parts) > MAX_SEGMENTS:
            problems.append(ConfigProblem(place, f"at most {MAX_SEGMENTS} segments", f"{len(parts)}"))
        if syntax.name == "MQTT" and parts[0].lower() == SHARED:
            hint = (
                "messages come by their own topics; to share work, have one bridge and a group of the channel's sinks"
            )
            problems.append(ConfigProblem(place, "no shared subscription", repr(parts[0]), hint))
        if any(each.rest for each in self._segments[:-1]):
            problems.append(ConfigProblem(place, "{name...} as the last segment", "one before it"))
        for name in sorted({name for name in self.fields if self.fields.count(name) > 1}):
            problems.append(ConfigProblem(place, "each field once", f"{name} again"))
        if problems:
            raise ConfigError(problems)

    @property
    def pattern(self) -> str:
        """What to subscribe to: all topics that `read` reads, and with MQTT's # also the one without the rest."""
        syntax = self.syntax
        return syntax.separator.join(
            each.text if not each.field else syntax.rest if each.rest else syntax.one for each in self._segments
        )

    def read(self, topic: str) -> dict[str, str] | None:
        """The texts of the fields in a topic; None if it is none of this template."""
        parts = topic.split(self.syntax.separator)
        found: dict[str, str] = {}
        for at, segment in enumerate(self._segments):
            if at >= len(parts):
                return None
            if segment.rest:
                found[segment.text] = self.syntax.separator.join(parts[at:])
                return found
            if segment.field:
                found[segment.text] = parts[at]
            elif segment.text != parts[at]:
                return None
        return found if len(parts) == len(self._segments) else None

    def write(self, fields: Mapping[str, object]) -> str:
        """The topic of an event; EncodeError if a field of it cannot stand there."""
        made = self.syntax.separator.join(
            _written(fields.get(each.text), each, self.syntax) if each.field else each.text for each in self._segments
        )
        first, most = self._segments[0], self.syntax.most
        if first.field and made.startswith(self.syntax.own):
            raise EncodeError(first.text, f"expected no topic of the broker itself, found {made[:60]!r}")
        if len(made.encode()) > most:
            raise EncodeError("", f"topic {self.text!r}: expected at most {most:,} bytes, found {len(made.encode()):,}")
        return made

    def overlaps(self, other: Topic, *, sent: bool = False) -> bool:
        """Whether there may be a topic that both read; `sent`: that a broker sends for both patterns, of which # is
        also sent the topic without a rest."""
        shorter, longer = sorted((self._segments, other._segments), key=len)
        for one, two in zip(shorter, longer, strict=False):
            if one.rest or two.rest:
                return True
            if not one.field and not two.field and one.text != two.text:
                return False
        return len(shorter) == len(longer) or (sent and len(longer) == len(shorter) + 1 and longer[-1].rest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topic) and (self.text, self.syntax) == (other.text, other.syntax)

    def __hash__(self) -> int:
        return hash((self.text, self.syntax))

    def __repr__(self) -> str:
        return f"Topic({self.text!r})"


def _encodes(text: str) -> bool:
    """Whether it is UTF-8: half a surrogate pair is none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _segment(part: str, syntax: TopicSyntax, place: str, problems: list[ConfigProblem]) -> Segment:
    found = _FIELD.fullmatch(part)
    if found is not None:
        return Segment(found[1], field=True, rest=found[2] is not None)
    if "{" in part or "}" in part:
        hint = f"{syntax.name} has {syntax.separator!r} between segments"
        problems.append(ConfigProblem(place, "{name} or {name...} as a whole segment", repr(part), hint))
    elif not syntax.is_segment(part):
        hint = f"write {{name}} for {syntax.one}, and {{name...}} for {syntax.rest}"
        problems.append(ConfigProblem(place, f"segments as {syntax.name} has them", repr(part), hint))
    return Segment(part)


def _written(value: object, segment: Segment, syntax: TopicSyntax) -> str:
    """A field of an event in a topic."""
    if value is None or isinstance(value, bytes | float | list | dict):
        raise EncodeError(
            segment.text, f"expected a text, a whole number, or true or false for a topic, found {value!r}"
        )
    text = ("true" if value else "false") if isinstance(value, bool) else str(getattr(value, "name", value))
    parts = text.split(syntax.separator) if segment.rest else [text]
    if not all(syntax.is_segment(each) for each in parts):
        raise EncodeError(segment.text, f"expected what {syntax.name} has between separators, found {text!r}")
    return text


__all__ = ["MQTT", "NATS", "Topic", "TopicSyntax"]
