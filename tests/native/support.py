"""What the native tests share: run a program in the interpreter and say what it gives in a comparable form."""

from __future__ import annotations

from typing import Any

from headwater.errors import InterestRefused
from headwater.ir.analyse import Analysis, analyse
from headwater.ir.interp import EventContext, State, initial_state, run
from headwater.types import EventType
from tests.programs import FUEL, Case
from tests.strategies import same

Events = list[tuple[dict[str, Any], EventContext]]


def analysis_of(case: Case) -> Analysis | None:
    """None where the program is refused, for instance because a loop cannot end."""
    try:
        return analyse(case.program, fuel=FUEL)
    except InterestRefused:
        return None


def interpret(analysis: Analysis, case: Case, events: Events) -> tuple[list[Any], State]:
    """Status, faults and raw output of each event in turn, and the state that is left."""
    state = initial_state(analysis.program)
    found = []
    for event, meta in events:
        outcome = run(analysis.program, event, meta=meta, params=case.params, state=state, fuel=FUEL)
        found.append((outcome.status, outcome.faults, outcome.output))
    return found, state


def agree(native: Any, expected: Any, output: EventType | None) -> bool:
    """Status and faults are equal, and the output's bytes are too (but for the payload of a NaN)."""
    if native[:2] != expected[:2]:
        return False
    if expected[2] is None or output is None:
        return native[2] is None and expected[2] is None
    encoded = output.encode(expected[2])
    return native[2] == encoded or (
        len(native[2]) == len(encoded) and same(output.decode_raw(native[2]), output.decode_raw(encoded))
    )
