"""Which engine runs a pattern: the one with the least to do for a row."""

from __future__ import annotations

from typing import Any, Literal

from headwater.errors import ExecutionError
from headwater.native.subset import Mode
from headwater.patterns import model
from headwater.patterns.automaton import Automaton
from headwater.patterns.engine.apart import ApartEngine
from headwater.patterns.engine.linked import LinkedEngine, links_of
from headwater.patterns.engine.separate import SeparateEngine, can_separate
from headwater.patterns.engine.shared import SharedEngine, can_share
from headwater.patterns.engine.tapes import Unsupported, registers

EngineName = Literal["shared", "linked", "separate", "apart"]


def engine_for(
    pattern: model.Pattern,
    automaton: Automaton,
    fields: Any,
    mode: Mode = "compiled",
    interpreted: bool = False,
    name: EngineName | None = None,
) -> Any:
    """What runs a pattern: as shared as it can be, or the engine that is named, if that can. `Unsupported` or
    ExecutionError say why it cannot."""
    if name in (None, "shared") and can_share(pattern, automaton):
        return SharedEngine(pattern, automaton, mode)
    if name in (None, "linked") and links_of(pattern, automaton) is not None:
        return LinkedEngine(pattern, automaton, mode)
    if name in ("shared", "linked"):
        raise ExecutionError(f"expected a pattern whose runs can be {name}, found another")
    if name in (None, "separate") and can_separate(pattern, automaton):
        try:
            return SeparateEngine(pattern, automaton, registers(pattern), mode)
        except Unsupported:
            if name == "separate":
                raise
    return ApartEngine(pattern, automaton, fields, mode, interpreted)


__all__ = ["EngineName", "engine_for"]
