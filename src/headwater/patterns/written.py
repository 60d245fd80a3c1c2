"""A pattern as it was written: what the three notations make and the checker reads.

    Pattern   = root Node, window, partition, among, begin, after, reuse, time, lateness, patience, measures, params
    Node      = Atom | Sequence | Either | Both | Repeat | Without
    Atom      = name?, channel, arguments of a template, condition?

Nothing here is checked: channels and fields are names, conditions are text or functions. Every part knows where it was
written; places never take part in equality. `docs/semantics.md` says what each part means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headwater.ir.nodes import NOWHERE, Span

Selection = Literal["strict", "next", "any"]
SELECTIONS: tuple[Selection, ...] = ("strict", "next", "any")
Begin = Literal["each", "first"]

_span = field(default=NOWHERE, compare=False, repr=False)


# ── what is tested of one event ──


@dataclass(frozen=True, slots=True)
class Condition:
    """An expression as text, or a Python function. A text begins at `span.start` of the pattern's text.

    In an atom it may name the event's own fields, the variables that the atom binds, and earlier elements (`a.level`,
    `count(b)`)."""

    definition: str | Callable[..., Any]
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Variable:
    """Binds a field; the same variable in two atoms means equality."""

    name: str
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Wildcard:
    """Any value, also a missing one."""

    span: Span = _span


@dataclass(frozen=True, slots=True)
class Value:
    """The field has this value; text, a number, a truth value, or `:name` as a `Condition`'s parameter."""

    value: Any
    parameter: bool = False  # `value` is the name of a parameter
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Argument:
    """Of a template: `field` is None where the argument goes by its position among the type's fields."""

    value: Variable | Wildcard | Value
    field: str | None = None
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Atom:
    """One event of a channel, or of a pattern of channel names. `arguments` is None where there is no template at all;
    `()` is a template of no arguments. `named` is the place where its channel stands, if that is elsewhere."""

    channel: str
    name: str | None = None
    arguments: tuple[Argument, ...] | None = None
    condition: Condition | None = None
    span: Span = _span
    named: Span | None = field(default=None, compare=False, repr=False)


# ── how events are put together ──


@dataclass(frozen=True, slots=True)
class Sequence:
    """`selections[i]` is that of the step from part i to part i + 1; that before a `Without` is of no account."""

    parts: tuple[Node, ...]
    selections: tuple[Selection, ...]
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Either:
    """`p | q`; those on the left are preferred."""

    parts: tuple[Node, ...]
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Both:
    """All parts, in any order, interleaved; `selection` is that of steps between parts."""

    parts: tuple[Node, ...]
    selection: Selection = "next"
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Repeat:
    """`least` to `most` rounds (None: without end). `greedy` says which is preferred where one has to be chosen."""

    part: Node
    least: int = 1
    most: int | None = None
    selection: Selection = "next"
    greedy: bool = True
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Without:
    """Nothing of this kind. As a part of a Sequence: between its neighbours, or after the last until the window ends
    (`part` is an Atom or an Either of atoms). With `of`: nowhere between the elements of that expression."""

    part: Node
    of: Node | None = None
    span: Span = _span


Node = Atom | Sequence | Either | Both | Repeat | Without


# ── the whole ──


@dataclass(frozen=True, slots=True)
class After:
    """Where the next match may begin. `element` goes with `first` and `last` only."""

    rule: Literal["no skip", "next", "past last", "first", "last"]
    element: str | None = None
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Window:
    """Microseconds, or a number of rows; inclusive."""

    microseconds: int | None = None
    rows: int | None = None
    parameter: str | None = None  # of the caller: a number of seconds
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Measure:
    """A field of the result."""

    name: str
    value: Condition
    span: Span = _span


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern as somebody wrote it, in whichever notation: nothing of it has been checked."""

    root: Node
    window: Window | None = None
    partition: tuple[Condition, ...] = ()
    among: Condition | None = None
    begin: Begin | None = None  # None: `each` with a window, `first` without
    after: After = After("no skip")
    reuse: bool = True
    time: Condition | None = None  # None: that of publication
    lateness: int = 0  # microseconds
    patience: int | None = None  # microseconds; None: absence is never asserted of a source that has not promised
    measures: tuple[Measure, ...] | None = None  # None: all elements
    subsets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # names for unions of elements (SQL's SUBSET)
    aliases: Mapping[str, str] = field(default_factory=dict)  # of channels: `Seen` for `ie.tcd.cs.sighting`
    text: str = field(default="", compare=False, repr=False)
    notation: str = field(default="", compare=False)
    places: Mapping[str, Span] = field(default_factory=dict, compare=False, repr=False)  # of clauses, by these names


__all__ = [
    "SELECTIONS",
    "After",
    "Argument",
    "Atom",
    "Begin",
    "Both",
    "Condition",
    "Either",
    "Measure",
    "Node",
    "Pattern",
    "Repeat",
    "Selection",
    "Sequence",
    "Value",
    "Variable",
    "Wildcard",
    "Window",
    "Without",
]  # fmt: skip
