"""One definition, four executions: on random event types, events and programs they all give the same outcome.

The other tests of agreement go deeper, two executions at a time; this one puts all four side by side through the public
interface, on types that nobody thought of.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import strategies as st

from headwater import Interest
from headwater.errors import InterestRefused
from headwater.interest import Limits
from headwater.ir.interp import EventContext
from headwater.spark import choice, outcome
from headwater.types import model as m
from tests import programs, strategies
from tests.effort import rounds
from tests.semantics.fixtures import meta_arrays
from tests.spark.support import META, VERDICT, frame, sample

TYPES, EVENTS, PROGRAMS = rounds(5, 12), 25, 8


@st.composite
def worlds(draw: st.DrawFn) -> tuple[m.Record, list[tuple[dict[str, Any], EventContext]], list[programs.Case]]:
    """An event type, events of it with what the service knows of them, and interests in them."""
    record = draw(strategies.records(2, min_fields=2, max_fields=6))
    events = st.tuples(strategies.raw_events(record), programs.meta())
    filters = st.one_of(programs.filters(record, state=False), programs.predicates(record))
    return (
        record,
        draw(st.lists(events, min_size=EVENTS, max_size=EVENTS)),
        draw(st.lists(filters, min_size=PROGRAMS, max_size=PROGRAMS)),
    )


def accepted(cases: list[programs.Case]) -> list[Interest]:
    """Without those that the analysis refuses, such as endless loops."""
    made = []
    for case in cases:
        with suppress(InterestRefused):
            made.append(Interest.from_program(case.program, case.params, limits=Limits(fuel=programs.FUEL)))
    return made


@pytest.mark.usefixtures("compiled")
def test_all_four_agree_on_random_types_events_and_programs(spark: Any) -> None:
    kinds: set[str] = set()
    for record, events, cases in sample(worlds(), TYPES):
        interests = accepted(cases)
        rows = frame(spark, record, [event for event, _ in events], [meta for _, meta in events])
        for i, interest in enumerate(interests):
            kinds.add(choice(interest).kind)
            rows = outcome(rows, interest, meta=META, name=f"outcome {i}")
        found = rows.select([f"outcome {i}" for i in range(len(interests))]).toArrow()
        for i, interest in enumerate(interests):
            expected = [interest.interpret(event, meta=meta) for event, meta in events]
            verdicts = [VERDICT[o.status] for o in expected]

            native = interest.native().wait()
            one_by_one = [native.run(interest.type.encode(event), meta) for event, meta in events]
            assert [(o.status, o.faults) for o in one_by_one] == [(o.status, o.faults) for o in expected]

            batch = interest.type.to_arrow([event for event, _ in events])
            result = interest.native().batch(batch, meta=meta_arrays([meta for _, meta in events]))
            assert result.selection.to_pylist() == verdicts

            assert found.column(i).to_pylist() == verdicts, (choice(interest), interest.text)
    assert kinds == {"column", "arrow function"}
