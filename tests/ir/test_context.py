"""What runs of a program that reads a context says what the program says of event and context together."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from headwater.errors import InterestError, InterestRefused
from headwater.ir import context as contexts
from headwater.ir.analyse import analyse
from headwater.ir.interp import EventContext, initial_state, run
from headwater.types import model as m
from tests import programs
from tests import strategies as s
from tests.effort import examples
from tests.programs import FUEL, Case

SCALARS = st.sampled_from((*m.INTEGERS, m.F32, m.F64, m.BOOL, m.TEXT, m.BYTES, m.TIMESTAMP))
NAMES = ("gain", "mode", "level")  # the last may be a field of the event, too
Moment = tuple[dict[str, Any], dict[str, Any] | None, EventContext]


@st.composite
def cases(draw: st.DrawFn) -> tuple[m.Record, m.Record, Case, list[Moment]]:
    """An event type, a context, a program over both, and events with the context of each; or with none."""
    event = draw(s.records(1, max_fields=3, names=("level", "net", "n")))
    context = contexts.check(draw(s.records(0, max_fields=3, names=NAMES, field_types=SCALARS)))
    wide = contexts.wide(event, context)
    case = draw(programs.transforms(wide) if draw(st.booleans()) else programs.filters(wide))
    moments = st.tuples(s.raw_events(event), st.none() | s.raw_events(context), programs.meta())
    return event, context, case, draw(st.lists(moments, min_size=1, max_size=4))


@settings(deadline=None, max_examples=examples(100), suppress_health_check=list(HealthCheck))
@given(cases())
def test_values_as_parameters_mean_the_same(drawn: tuple[m.Record, m.Record, Case, list[Moment]]) -> None:
    event, context, case, moments = drawn
    try:
        whole = analyse(case.program, fuel=FUEL).program
        read = contexts.reads(case.program)
    except (InterestRefused, InterestError):  # a loop without an end; a context that is copied as a whole
        assume(False)
    alone = analyse(contexts.bound(case.program, event), fuel=FUEL, refuse=False).program
    before, after = initial_state(whole), initial_state(alone)
    for raw, values, meta in moments:
        wide = {**raw, "context": values}
        expected = run(whole, wide, meta=meta, params=case.params, state=before, fuel=FUEL)
        known = contexts.unknown(case.program) if values is None else contexts.known(read, context, values)
        found = run(alone, raw, meta=meta, params={**case.params, **known}, state=after, fuel=FUEL)
        assert (found.status, found.faults) == (expected.status, expected.faults)
        assert s.same(found.output, expected.output)
    assert s.same(after, before)
