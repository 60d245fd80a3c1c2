"""An interest: what a sink wants, written once, checked, and ready to run wherever the events are.

>>> from headwater import Interest
>>> loud = Interest("level > :limit", "level: f64, network: text", params={"limit": 0.5})
>>> loud.test({"level": 0.7, "network": "ORL-Net#1"})
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, overload

from headwater.errors import ExecutionError, ParameterError, Problem
from headwater.ir import context as contexts
from headwater.ir import interp, serial, walk
from headwater.ir.analyse import Analysis, analyse
from headwater.ir.build import Builder
from headwater.ir.certainty import remarks
from headwater.ir.cost import Cost, Limits, check_limits, surely_within
from headwater.ir.covers import covers
from headwater.ir.inputs import fields_read
from headwater.ir.interp import EventContext, Fault, Outcome, Status
from headwater.ir.nodes import Missing, ParamDecl, Program
from headwater.ir.params import MapOf, SetOf, bind, declare
from headwater.ir.rebind import rebind
from headwater.ir.rewrite import normalise
from headwater.ir.show import show
from headwater.ir.uses import by_use, check_used, is_flexible
from headwater.lang.names import meta
from headwater.lang.pyconst import State
from headwater.runnable import INTEREST, Clock, register
from headwater.spelling import did_you_mean
from headwater.types import Event, EventType, event_type
from headwater.types.declaration import parse_record
from headwater.types.marks import whole_at
from headwater.types.model import Field, Record

if TYPE_CHECKING:
    import builtins

    from typing_extensions import TypeVar

    from headwater.native.program import BatchResult, Native

    Made = TypeVar("Made", default=Any)
    F = TypeVar("F", bound=Event)
else:  # a default is for type checkers only, before Python 3.13
    from typing import TypeVar

    Made, F = TypeVar("Made"), TypeVar("F")


class Unchanged:
    """To type checkers, the class of what a filter passes on: that of the events themselves."""


Notation = Literal["predicate", "ecode", "python"]
RECORDS = (bytes, bytearray, memoryview)  # what holds a record rather than an event
NOTATIONS: tuple[Notation, ...] = ("predicate", "ecode", "python")


class Apart(NamedTuple):
    """What is asked of the sources of other nodes, which may run that only there (`there`), and of those of this node,
    whose events are taken as they are (`here`; None: all of them)."""

    there: Interest
    here: Interest | None


class Origin(NamedTuple):
    """The entry of a library that an interest is: its name, its version, and the fingerprint of what was published."""

    name: str
    version: int
    fingerprint: bytes

    def __str__(self) -> str:
        return f"@{self.name}/{self.version}"


def is_reference(where: object) -> bool:
    """Whether what was given for an interest, a pattern or a trigger is the name of one in a library."""
    return isinstance(where, str) and where.lstrip().startswith("@")


class Interest(Generic[Made]):
    """A checked filter or, with `output`, a transformation, over events of one type.

    `definition` is predicate text, E-Code (text that starts with `{`), or a Python function or lambda; `notation`
    says which where that is not plain. Everything wrong with it is reported at once, as an InterestError.
    """

    @overload
    def __init__(
        self: Interest[Unchanged],
        definition: str | Callable[..., Any],
        on: Any,
        *,
        output: None = None,
        params: Mapping[str, object] | None = None,
        notation: Notation | None = None,
        limits: Limits | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Interest[F],
        definition: str | Callable[..., Any],
        on: Any,
        *,
        output: builtins.type[F],
        params: Mapping[str, object] | None = None,
        notation: Notation | None = None,
        limits: Limits | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Interest[Any],
        definition: str | Callable[..., Any],
        on: Any,
        *,
        output: Any,
        params: Mapping[str, object] | None = None,
        notation: Notation | None = None,
        limits: Limits | None = None,
    ) -> None: ...
    def __init__(
        self,
        definition: str | Callable[..., Any],
        on: Any,
        *,
        output: Any = None,
        params: Mapping[str, object] | None = None,
        notation: Notation | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.type = as_event_type(on)
        self.output = as_event_type(output) if output is not None else None
        to = self.output.record if self.output is not None else None
        given = dict(params or {})
        if any(name.startswith(contexts.PREFIX) for name in given):
            program, values = _with_context(definition, self.type.record, to, given, notation)
        else:
            program, values = parse(definition, self.type.record, output=to, params=given, notation=notation)
        self._finish(program, values, limits)

    def _finish(self, program: Program, values: Mapping[str, object], limits: Limits | None) -> None:
        self.limits = limits or Limits()
        self.analysis: Analysis = analyse(program, fuel=self.limits.fuel)
        self.program: Program = self.analysis.program
        self.params: dict[str, Any] = bind(program.params, values)
        if not surely_within(program, self.limits):
            check_limits(self.analysis, self.limits)

    @classmethod
    def from_program(
        cls, program: Program, params: Mapping[str, object] | None = None, *, limits: Limits | None = None
    ) -> Interest:
        """An interest from a program that was built, received or rewritten."""
        self = cls.__new__(cls)
        self.type = event_type(program.input)
        self.output = event_type(program.output) if program.output is not None else None
        self._finish(program, params or {}, limits)
        return self

    # ── what it is ──

    kind: ClassVar[str] = INTEREST
    origin: Origin | None = None  # where it was had by name
    contextual: ClassVar[bool] = False  # whether it reads the context of a source, so that only that can judge it

    @property
    def stateful(self) -> bool:
        """Whether what it says of an event depends on those before, at the same source."""
        return self.program.stateful

    @cached_property
    def whole_at(self) -> int | None:
        """Of one that makes marks: which byte of a mark says that the event itself goes in its place; else None."""
        return None if self.output is None else whole_at(self.output.record)

    @property
    def partition(self) -> tuple[str, ...]:
        """By what its state is kept apart: there is one for each source."""
        return ()

    @property
    def notation(self) -> str:
        """In which notation it was written."""
        return self.program.notation

    @property
    def text(self) -> str:
        """As it was written."""
        return self.program.text

    @cached_property
    def cost(self) -> Cost:
        """What an event costs, estimated and at worst, and the memory it takes."""
        return check_limits(self.analysis, self.limits)

    @cached_property
    def normal(self) -> Program:
        """The normal form: equal for interests that say the same in other words, as far as we can tell."""
        return normalise(self.program)

    @cached_property
    def warnings(self) -> tuple[Problem, ...]:
        """What is allowed and hardly meant, each with its place: an interest that no event can pass, or every event
        passes, and parts that are never true, such as `b > 300` for a field of type u8."""
        return remarks(self.analysis, self.normal)

    @cached_property
    def executed(self) -> Analysis:
        """The normal form, analysed: what is compiled, so that equal interests share their machine code.

        It may show that a loop never ends where the program as written did not; that loop was accepted, and has fuel.
        """
        return analyse(self.normal, fuel=self.limits.fuel, refuse=False)

    @cached_property
    def needs_only_a_moment(self) -> bool:
        """Whether it looks at nothing but the event, and is quick enough to be run while other threads wait."""
        from headwater.native.record import is_long, uses_meta

        program = self.executed.program
        return not uses_meta(program) and not is_long(program)

    @cached_property
    def fingerprint(self) -> bytes:
        """16 bytes that are equal for equal normal forms, on every machine."""
        return serial.fingerprint_of_normal(self.normal)

    def covers(self, other: Interest) -> bool:
        """Whether everything that `other` passes is certain to pass here too."""
        return covers(self.program, other.program, a_params=self.params, b_params=other.params)

    def __repr__(self) -> str:
        kind = f" -> {self.output.name}" if self.output else ""
        return f"<Interest {self.fingerprint.hex()[:12]} {self.type.name}{kind}: {_one_line(self.text)}>"

    def __str__(self) -> str:
        return show(self.normal)

    # ── moving it ──

    def dumps(self, *, with_text: bool = True) -> bytes:
        """The serial form: what travels between nodes. Parameter values travel beside it."""
        return self._serial if with_text else serial.dumps(self.program, with_text=False)

    @cached_property
    def _serial(self) -> bytes:
        return serial.dumps(self.program, with_text=True)

    @classmethod
    def loads(
        cls, data: bytes, params: Mapping[str, object] | None = None, *, limits: Limits | None = None
    ) -> Interest:
        """From the serial form; the bytes may come from anyone."""
        return cls.from_program(serial.loads(data), params, limits=limits)

    def on(self, other: Any) -> Interest:
        """The same interest for another event type: fields go by name, what that type lacks is missing."""
        return self._as(rebind(self.program, as_event_type(other).record), self.params)

    def unreadable(self, other: Any) -> list[str]:
        """Fields that it reads and cannot do without, and that another event type lacks, or has in a form that it
        cannot read: over such events they would be missing."""
        mine, theirs = self.program.input, as_event_type(other).record
        found = []
        for name in fields_read(self.program):
            if self.contextual and name == contexts.FIELD:
                continue
            field, there = mine.by_name[name], theirs.by_name.get(name)
            if there is None:
                if not field.optional:
                    found.append(name)
            elif there.type != field.type:
                swapped = tuple(there if each.name == name else each for each in mine.fields)
                if _missing(rebind(self.program, Record(mine.name, swapped))) > _missing(self.program):
                    found.append(name)
        return found

    def given(self, params: Mapping[str, object]) -> Interest:
        """The same interest with other values of some of its parameters."""
        return self._as(self.program, {**self.params, **params})

    def _as(self, program: Program, params: Mapping[str, object]) -> Interest:
        made = self.from_program(program, params, limits=self.limits)
        made.origin = self.origin
        return made

    # ── running it ──

    def interpret(
        self,
        event: Any,
        *,
        meta: interp.EventContext | None = None,
        state: interp.State | None = None,
    ) -> interp.Outcome:
        """By the reference interpreter: slow, and by definition right."""
        if state is None and self.program.stateful:
            state = interp.initial_state(self.program)
        raw = self.type.decode_raw(event) if isinstance(event, RECORDS) else self.type.to_raw(event)
        return interp.run(self.program, raw, meta=meta, params=self.params, state=state, fuel=self.limits.fuel)

    def start(self, clock: Clock | None = None) -> Native:
        """A run of it, as of any `Runnable`: what a source holds. Interests act when events come, and need no clock."""
        return self.native()

    def native(self, *, after: int = 0) -> Native:
        """A running copy with its own parameters, state and counts. Machine code is made when it has run on so many
        records: `after`, for one that may never run on more than a few."""
        from headwater.native.program import Native

        return Native(self.executed, raw_params=self.params, fuel=self.limits.fuel, after=after)

    def prepare(self) -> None:
        """Make what an event would otherwise wait for: machine code, where the interpreter would take long."""
        from headwater.native.program import prepare

        prepare(self.executed, self.limits.fuel)

    @cached_property
    def _shared(self) -> Native:
        return self.native()

    def test(self, event: Any) -> bool:
        """Whether the event passes. For a stream with state or parameters that change, use `native()`."""
        self._only_stateless("test")
        record = event if isinstance(event, RECORDS) else self.type.encode(event)
        return self._shared.test(record)

    def select(self, events: Any) -> BatchResult:
        """A whole batch at once, natively: a selection, the counts and, for transformations, the output.

        `events` are a RecordBatch, a Table, a pandas or polars frame, or an iterable of events."""
        self._only_stateless("select")
        return self._shared.batch(self.type.batch_of(events))

    def _only_stateless(self, what: str) -> None:
        if self.program.stateful:
            raise ExecutionError(f"{what}(): this interest has state, which lives at one source; use native().{what}()")


def as_event_type(on: Any) -> EventType:
    """An event type from an Event class, an EventType, an Arrow schema, a Record, or its declaration on one line."""
    return event_type(parse_record(on)) if isinstance(on, str) else event_type(on)


def _guess(definition: str | Callable[..., Any]) -> Notation:
    if not isinstance(definition, str):
        return "python"
    start = definition.lstrip()
    if start.startswith(("{", "/*", "//")):
        return "ecode"
    return "python" if start.startswith(("lambda ", "lambda:", "def ")) else "predicate"


def parse(
    definition: str | Callable[..., Any],
    input: Record,
    *,
    output: Record | None = None,
    params: Mapping[str, object] | None = None,
    notation: Notation | None = None,
    builder: type[Builder] = Builder,
    offered: bool = False,
) -> tuple[Program, Mapping[str, object]]:
    """The program of a definition in any notation, and its parameters' values; `builder` says what results become.

    Where parameters are integers it may be read twice: what they are used as says of what type they are. `offered`:
    parameters may be left unread."""
    notation = notation or _guess(definition)
    if notation not in NOTATIONS:
        hint = did_you_mean(notation, NOTATIONS)
        raise ValueError(
            f"notation: expected one of {', '.join(NOTATIONS)}, found {notation!r}{f'; {hint}' if hint else ''}"
        )
    read = partial(_read, definition, input, output, params or {}, notation)
    decls = None if notation == "python" else declare(params or {})  # of a function, its signature says more
    if decls is not None and not any(is_flexible(decl, (params or {})[decl.name]) for decl in decls):
        program, values = read(decls, builder)
        if not offered:
            check_used(program)
        return program, values
    look: Any = type(builder.__name__, (builder,), {"settled": False, "doubts": []})
    program, values = read(decls or (), look)
    if decls is not None and not offered:
        check_used(program)
    meant = by_use(program, values)
    if meant == program.params and not look.doubts:
        return program, values
    return read(meant, builder)


def _with_context(
    definition: str | Callable[..., Any],
    input: Record,
    output: Record | None,
    params: dict[str, object],
    notation: Notation | None,
) -> tuple[Program, Mapping[str, object]]:
    """The program of a definition that reads a context, values of which are given as parameters (`context.gain`)."""
    own = {name: value for name, value in params.items() if not name.startswith(contexts.PREFIX)}
    given = {name.removeprefix(contexts.PREFIX): value for name, value in params.items() if name not in own}
    context = contexts.check(Record("Context", tuple(Field(each.name, each.type) for each in declare(given))))
    program, values = parse(definition, contexts.wide(input, context), output=output, params=own, notation=notation)
    read = contexts.reads(program)
    if unread := [name for name in given if name not in read]:
        raise ParameterError(f"no parameter {contexts.PREFIX + unread[0]!r}: the interest does not read it")
    made = contexts.fixed(program, input, given)
    return made, {**values, **{contexts.PREFIX + name: value for name, value in given.items()}}


def check_syntax(definition: str, notation: Notation | None = None) -> None:
    """Raise an InterestError for what is wrong with a text whatever its event type is, before that is known."""
    notation = notation or _guess(definition)
    if notation == "python":
        from headwater.lang import pysource

        pysource.read(definition)
    elif notation == "ecode":
        from headwater.lang import ecode

        ecode.check_syntax(definition)
    else:
        from headwater.lang import predicate

        predicate.check_syntax(definition)


def _read(
    definition: str | Callable[..., Any],
    input: Record,
    output: Record | None,
    params: Mapping[str, object],
    notation: Notation,
    decls: tuple[ParamDecl, ...],
    builder: type[Builder],
) -> tuple[Program, Mapping[str, object]]:
    """The program of a definition, by the parser of its notation, and the parameters that it was given with."""
    # The parsers are imported when they are first needed: each costs time that other notations need not pay.
    if notation == "python":
        from headwater.lang import pyfunc

        parsed = pyfunc.parse(definition, input, output=output, params=params, declared=decls, builder=builder)
        return parsed.program, parsed.params
    if not isinstance(definition, str):
        raise TypeError(f"{notation}: expected text, found {definition!r}")
    if notation == "ecode":
        from headwater.lang import ecode

        return ecode.parse(definition, input, output=output, params=decls, builder=builder), params
    if output is not None:
        raise TypeError("predicate text can only filter; write a transformation in E-Code or Python")
    from headwater.lang import predicate

    return predicate.parse(definition, input, params=decls, builder=builder), params


def _missing(program: Program) -> int:
    """How often it says that something is missing."""
    return sum(isinstance(each, Missing) for each in walk.all_expressions(program.body))


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "…"


register(INTEREST, Interest.loads)

__all__ = [
    "NOTATIONS",
    "Event",
    "EventContext",
    "Fault",
    "Interest",
    "Limits",
    "MapOf",
    "Notation",
    "Origin",
    "Outcome",
    "SetOf",
    "State",
    "Status",
    "as_event_type",
    "meta",
]
