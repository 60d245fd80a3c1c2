"""Interests that read the context of a source: only who has it can judge them.

Such an interest runs where the source is, as one with state does, and what it passes is marked as its own on the way.
Wherever there is no context, its values are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from headwater.errors import SerialError, TypeDeclarationError
from headwater.interest import Interest, Notation, as_event_type, parse
from headwater.ir import context as contexts
from headwater.ir import interp
from headwater.ir.cost import Cost, Limits
from headwater.ir.nodes import Program
from headwater.ir.rebind import rebind
from headwater.runnable import register
from headwater.types import EventType, event_type
from headwater.types.model import Record, Type

if TYPE_CHECKING:
    from headwater.native.program import Native

KIND = "interest with context"


class ContextInterest(Interest):
    """An interest whose program is over the event and a context. `type` is that of the event alone."""

    kind: ClassVar[str] = KIND
    contextual = True
    context: Record  # as whoever wrote it knows it

    @classmethod
    def from_program(
        cls, program: Program, params: Mapping[str, object] | None = None, *, limits: Limits | None = None
    ) -> ContextInterest:
        """From a program over a wide record; SerialError if it is over another."""
        try:
            found = contexts.parted(program.input)
        except TypeDeclarationError as error:
            raise SerialError(f"expected an interest that reads a context, found one that cannot: {error}") from None
        if found is None:
            raise SerialError(f"expected an interest that reads a context, found one over {program.input.name}")
        self = cls.__new__(cls)
        self.type, self.context = event_type(found[0]), found[1]
        self.output = event_type(program.output) if program.output is not None else None
        self._finish(program, params or {}, limits)
        return self

    @cached_property
    def judged(self) -> Interest:
        """What runs: over the event, with the values of the context as parameters."""
        program = contexts.bound(self.program, self.type.record)
        values = {**self.params, **contexts.unknown(self.program)}
        return Interest.from_program(program, values, limits=self.limits)

    @cached_property
    def reads(self) -> dict[str, Type]:
        """Which values of the context it reads, and as what."""
        return contexts.reads(self.program)

    def parameters(self, context: Record, values: Mapping[str, Any], *, known: bool = True) -> dict[str, Any]:
        """For `set_params` of a run: the context is this, or is not known."""
        return contexts.known(self.reads, context, values) if known else contexts.unknown(self.program)

    @cached_property
    def cost(self) -> Cost:
        """Of what runs."""
        return self.judged.cost

    @cached_property
    def needs_only_a_moment(self) -> bool:
        """It looks at more than the event."""
        return False

    def on(self, other: Any) -> Interest:
        """The same for another event type; it reads the context as before."""
        return self._as(rebind(self.program, contexts.wide(as_event_type(other).record, self.context)), self.params)

    def unreadable(self, other: Any) -> list[str]:
        """Fields of the event that it cannot do without, and that another type lacks."""
        return self.judged.unreadable(other)

    def interpret(
        self, event: Any, *, meta: interp.EventContext | None = None, state: interp.State | None = None
    ) -> interp.Outcome:
        """By the reference interpreter, without a context."""
        return self.judged.interpret(event, meta=meta, state=state)

    def native(self, *, after: int = 0) -> Native:
        """A running copy, without a context until it is given one."""
        return self.judged.native(after=after)

    def prepare(self) -> None:
        """Make what an event would otherwise wait for."""
        self.judged.prepare()


def interest_with_context(
    definition: str | Callable[..., Any],
    type: EventType,
    context: Record,
    *,
    output: Any = None,
    params: Mapping[str, object] | None = None,
    notation: Notation | None = None,
) -> Interest:
    """An interest that may read a context; if it does not, one like any other."""
    to = None if output is None else as_event_type(output)
    record = contexts.wide(type.record, context)
    program, values = parse(
        definition, record, output=None if to is None else to.record, params=dict(params or {}), notation=notation
    )
    made: Interest
    if contexts.reads(program):
        made = ContextInterest.from_program(program, values)
    else:
        made = Interest.from_program(rebind(program, type.record), values)
    made.type = type
    if to is not None:
        made.output = to
    return made


register(KIND, ContextInterest.loads)

__all__ = ["ContextInterest", "interest_with_context"]
