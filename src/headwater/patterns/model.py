"""A pattern that was checked: what the automaton, the runners and the oracle read.

    Pattern   = channels, elements, root Node, absent, conditions, variables, window, begin, after, measures, limits
    Node      = Leaf | Sequence | Either | Both | Repeat; between two taken events there is a Step
    Element   = a label, the channels and the type of its events, and what is asked of one event by itself
    Condition = what is asked of several events: an interest over a record with a member for each `View` that it reads

Everything that is asked is an `Interest`, so it is typed, bounded, and runs wherever interests run. Names are resolved:
an element is its position in `Pattern.elements`. `without` is gone from the tree: what may not come between two taken
events is `Step.forbidden`, what may not come after the last one is `Pattern.absent`. `docs/semantics.md` has the
meaning; this file has no rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from headwater.errors import Problem
from headwater.interest import Interest
from headwater.ir.nodes import NOWHERE, Span
from headwater.patterns.written import Begin, Selection
from headwater.types import EventType
from headwater.types.model import Type, canonical

_span = field(default=NOWHERE, compare=False, repr=False)

# ── what is tested ──


@dataclass(frozen=True, eq=False)
class Channel:
    """A channel that the pattern takes events of.

    `key` makes an event's partition: it passes with the key record (`Pattern.key`) if every part of it has a value that
    is not NaN, -0.0 being 0.0. `time` makes a record of one field `time`, a timestamp; None: the time of publication.
    `among` says what counts as a row although no element takes it; None: every event, if `all`, or else none."""

    name: str
    type: EventType
    key: Interest | None = None
    time: Interest | None = None
    among: Interest | None = None
    all: bool = True


@dataclass(frozen=True, eq=False)
class Element:
    """What takes one event. `condition` is asked of the event alone, None: every event of the channels fits.

    `negative`: it takes none, and stands for what may not come. `multiple`: one occurrence may take several."""

    name: str
    channel: str  # as written: a name, or a pattern of names
    channels: tuple[str, ...]  # the names it stands for
    type: EventType
    condition: Interest | None = None
    negative: bool = False
    multiple: bool = False
    span: Span = _span


@dataclass(frozen=True)
class Subset:
    """A name for the events of several elements together, in their order."""

    name: str
    elements: tuple[int, ...]


Kind = Literal["latest", "first", "prev", "count", "values", "sum", "min", "max", "mean", "meta"]
KINDS: tuple[Kind, ...] = ("latest", "first", "prev", "count", "values", "sum", "min", "max", "mean", "meta")


@dataclass(frozen=True)
class View:
    """What a condition reads of an element or subset (`name`), as a member of its record.

    latest, first, prev  fields of the last event taken, the first, and the one before the last; missing without one
    count                a number: events taken, 0 at first
    values               fields: how many of the events have a value there
    sum, min, max, mean  fields: over the events that have a value there; the sum of none is 0, the others missing
    meta                 source, node, seq and time of the last event taken
    """

    name: str
    kind: Kind = "latest"

    @property
    def member(self) -> str:
        """Its name in the record. Names of elements have no dot."""
        return self.name if self.kind == "latest" else f"{self.name}.{self.kind}"


@dataclass(frozen=True, eq=False)
class Condition:
    """Asked when one of `elements` takes an event and all of them have by then; it must be true. The record is that of
    the elements as they are with that event. Usually `elements` is the one that it was written at; several come at
    once where their order is open (`Both`). Of a negative element: asked of a row as if it were taken."""

    elements: tuple[int, ...]
    interest: Interest
    views: tuple[View, ...]  # in the order of the record's fields
    span: Span = _span


@dataclass(frozen=True)
class Variable:
    """All events taken by elements that bind it have the same value in the field of theirs. No value is missing or NaN:
    the elements' conditions say so. Where `key`, it is part of the partition, and nothing is left to compare."""

    name: str
    type: Type
    fields: tuple[tuple[int, str], ...]  # element, and name of the field
    key: bool = False


@dataclass(frozen=True, eq=False)
class Measures:
    """The transformation from the record of a match to its result; `views` as in a Condition."""

    interest: Interest
    views: tuple[View, ...]


# ── how events are put together ──


@dataclass(frozen=True)
class Step:
    """From one taken event to the next; no row in between may fit one of the `forbidden` elements."""

    selection: Selection = "any"
    forbidden: tuple[int, ...] = ()


@dataclass(frozen=True)
class Leaf:
    """One event that fits an element."""

    element: int
    span: Span = _span


@dataclass(frozen=True)
class Sequence:
    """`steps[i]` leads from part i to part i + 1."""

    parts: tuple[Node, ...]
    steps: tuple[Step, ...]
    span: Span = _span


@dataclass(frozen=True)
class Either:
    """One of the parts; those on the left are preferred."""

    parts: tuple[Node, ...]
    span: Span = _span


@dataclass(frozen=True)
class Both:
    """All parts, interleaved in any way; `step` is that from an event of one part to an event of another."""

    parts: tuple[Node, ...]
    step: Step
    span: Span = _span


@dataclass(frozen=True)
class Repeat:
    """The part, again and again: at least `least` rounds, at most `most` (None: any number), by `step` from one to the
    next. `greedy`: another round is preferred to going on."""

    part: Node
    least: int
    most: int | None
    step: Step
    greedy: bool = True
    span: Span = _span


Node = Leaf | Sequence | Either | Both | Repeat


def leaves(node: Node) -> Iterator[Leaf]:
    """From left to right."""
    if isinstance(node, Leaf):
        yield node
    elif isinstance(node, Repeat):
        yield from leaves(node.part)
    else:
        for part in node.parts:
            yield from leaves(part)


def steps(node: Node) -> Iterator[Step]:
    """Every step within."""
    match node:
        case Sequence(parts=parts, steps=inner):
            yield from inner
        case Both(parts=parts, step=step):
            yield step
        case Either(parts=parts):
            pass
        case Repeat(part=part, step=step):
            yield step
            parts = (part,)
        case Leaf():
            return
    for part in parts:
        yield from steps(part)


# ── the whole ──


@dataclass(frozen=True)
class Window:
    """From the first event to the last, both included: microseconds, or rows. One of the two is given."""

    microseconds: int | None = None
    rows: int | None = None
    parameter: str | None = None  # whose value, in seconds, `microseconds` is


@dataclass(frozen=True)
class After:
    """Where the next match may begin; `elements` goes with `first` and `last` only."""

    rule: Literal["no skip", "next", "past last", "first", "last"] = "no skip"
    elements: tuple[int, ...] = ()


MAX_ELEMENTS = 64  # of a pattern: sets of them are machine words
MAX_ROUNDS = 1_000  # of a repetition with a limit
MAX_PLACES = 4_096  # elements, each as often as the repetitions around it have rounds


@dataclass(frozen=True)
class Limits:
    """What the owner of a node allows a pattern to hold; what is beyond is given up, the oldest first, and counted."""

    partitions: int = 100_000  # that are open at once
    runs_per_partition: int = 10_000  # partial matches
    runs: int = 1_000_000
    memory: int = 256 << 20  # bytes
    worst: int = 4_000_000_000  # native operations for an event, all its conditions together

    def __post_init__(self) -> None:
        for name in ("partitions", "runs_per_partition", "runs", "memory", "worst"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"limits: {name}: expected a whole number of 1 or more, found {value!r}")


@dataclass(frozen=True, eq=False)
class Pattern:
    """`key` is the record of a partition's key, None without partitions. `output` is the type of a result; without
    `measures` it has a field for each element that is not negative: its event, or the list of them where it may take
    several."""

    channels: tuple[Channel, ...]
    elements: tuple[Element, ...]
    root: Node
    absent: tuple[int, ...]
    conditions: tuple[Condition, ...]
    variables: tuple[Variable, ...]
    subsets: tuple[Subset, ...]
    window: Window | None
    begin: Begin
    after: After
    reuse: bool
    lateness: int  # microseconds
    patience: int | None  # microseconds
    key: EventType | None
    output: EventType
    measures: Measures | None
    limits: Limits
    params: Mapping[str, Any] = field(default_factory=dict)  # as they were given
    text: str = ""
    notation: str = ""
    warnings: tuple[Problem, ...] = ()  # what is allowed and hardly meant

    @cached_property
    def by_name(self) -> dict[str, Element]:
        return {element.name: element for element in self.elements}

    @cached_property
    def fingerprint(self) -> bytes:
        """16 bytes, equal for patterns that mean the same in the same words for elements, on every machine. Values of
        parameters are not in it, nor limits."""
        return blake2b(_pack(_canonical(self)), digest_size=16, person=b"hw-pattern").digest()


_pack = msgspec.msgpack.Encoder().encode


def _canonical(pattern: Pattern) -> list[Any]:
    """What a pattern means, as plain values in one form: spans and texts are left out, the order of channels and
    conditions does not count. Two patterns with the same form have the same matches, with the same identities."""

    def mark(interest: Interest | None) -> bytes | None:
        return None if interest is None else interest.fingerprint

    def type_mark(type: EventType | None) -> str | None:
        return None if type is None else canonical(type.record)

    window = pattern.window
    return [
        1,
        [[c.name, type_mark(c.type), mark(c.key), mark(c.time), mark(c.among), c.all]
         for c in sorted(pattern.channels, key=lambda c: c.name)],
        [[e.name, e.channel, list(e.channels), mark(e.condition), e.negative] for e in pattern.elements],
        plain(pattern.root),
        sorted(pattern.absent),
        sorted(([list(c.elements), mark(c.interest), [[v.name, v.kind] for v in c.views]] for c in pattern.conditions),
               key=_pack),
        [[v.name, list(map(list, v.fields)), v.key] for v in pattern.variables],
        [[s.name, list(s.elements)] for s in pattern.subsets],
        None if window is None else [None if window.parameter else window.microseconds, window.rows, window.parameter],
        pattern.begin,
        [pattern.after.rule, list(pattern.after.elements)],
        pattern.reuse,
        pattern.lateness,
        pattern.patience,
        type_mark(pattern.key),
        type_mark(pattern.output),
        None if pattern.measures is None else mark(pattern.measures.interest),
    ]  # fmt: skip


def plain(node: Node) -> list[Any]:
    """The tree as nested lists."""
    match node:
        case Leaf(element=element):
            return [0, element]
        case Sequence(parts=parts, steps=inner):
            return [1, list(map(plain, parts)), list(map(_step, inner))]
        case Either(parts=parts):
            return [2, list(map(plain, parts))]
        case Both(parts=parts, step=step):
            return [3, list(map(plain, parts)), _step(step)]
        case Repeat(part=part, least=least, most=most, step=step, greedy=greedy):
            return [4, plain(part), least, most, _step(step), greedy]


def _step(step: Step) -> list[Any]:
    return [step.selection, sorted(step.forbidden)]


__all__ = [
    "KINDS",
    "MAX_ELEMENTS",
    "MAX_PLACES",
    "MAX_ROUNDS",
    "After",
    "Both",
    "Channel",
    "Condition",
    "Either",
    "Element",
    "Kind",
    "Leaf",
    "Limits",
    "Measures",
    "Node",
    "Pattern",
    "Repeat",
    "Sequence",
    "Step",
    "Subset",
    "Variable",
    "View",
    "Window",
    "leaves",
    "plain",
    "steps",
]
