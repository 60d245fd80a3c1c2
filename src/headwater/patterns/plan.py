"""How a pattern would run, known before it does: by which engine and why, what a row costs and what is kept.

>>> print(plan(pattern))
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.patterns import model
from headwater.patterns.automaton import Automaton, automaton
from headwater.patterns.engine import run_lists, trees
from headwater.patterns.engine.index import index_of
from headwater.patterns.engine.layout import LISTS
from headwater.patterns.engine.linked import links_of
from headwater.patterns.engine.separate import can_separate
from headwater.patterns.engine.shared import can_share
from headwater.patterns.engine.tapes import Unsupported, registers

WORD = 8  # bytes
PLAIN_RUN = 400  # bytes of a run in plain Python, about


@dataclass(frozen=True)
class Plan:
    """`row` says what a row costs; `per_partition` and `per_run` are bytes, beside the events themselves. A shared run
    has no memory of its own: `per_run` is that of a taken event, which all runs share that have taken it."""

    engine: str
    why: str
    row: str
    per_partition: int
    per_run: int
    limit: str
    automaton: Automaton

    def __str__(self) -> str:
        lines = [
            f"engine     {self.engine}: {self.why}",
            f"a row      {self.row}",
            f"memory     {self.per_partition} bytes a partition, {self.per_run} bytes a "
            f"{'taken event' if self.engine in ('shared', 'linked') else 'run'}; {self.limit}",
            "automaton",
        ]
        return "\n".join([*lines, *(f"    {line}" for line in self.automaton.show().split("\n"))])


def plan(pattern: model.Pattern) -> Plan:
    """What `Runner` chooses."""
    it = automaton(pattern)
    limits = pattern.limits
    if can_share(pattern, it):
        states = it.states
        assert states is not None
        index = index_of(pattern, it)
        ordered = index is not None and bool(index.columns)
        what = "one value compares with that of the event before" if ordered else "no condition between elements"
        open = "and, where values compare, at the logarithm of the runs" if ordered else "however many runs are open"
        return Plan(
            "shared",
            f"{what}, and all matches are taken: runs share what they have in common",
            f"looks at {_states(len(states) - 1)} at most, {open}; a match costs its events",
            (LISTS + len(states)) * WORD,
            trees.NODE * WORD,
            f"at most {limits.memory:,} bytes of taken events and {limits.partitions:,} partitions",
            it,
        )
    if links_of(pattern, it) is not None:
        states = it.states
        assert states is not None
        return Plan(
            "linked",
            "elements that are not next to each other have a value in common: the runs of one value are found by it",
            f"looks at {_states(len(states) - 1)} at most, once more for each row without that value since it was last "
            "there; a match costs its events",
            (LISTS + len(states)) * WORD,
            trees.NODE * WORD,
            f"at most {limits.memory:,} bytes of taken events and {limits.partitions:,} values at a time",
            it,
        )
    each = f"goes through the runs that are open in its partition, at most {limits.runs_per_partition:,}"
    limit = f"at most {limits.runs:,} runs in {limits.partitions:,} partitions"
    why = "conditions between elements tell runs apart" if pattern.conditions else "a match decides which others count"
    if can_separate(pattern, it):
        try:
            held = registers(pattern)
        except Unsupported as error:
            why = f"{why}, and machine code does not have one of them: {error}"
        else:
            size = (run_lists.RUN + run_lists.NODE + run_lists.GROUP + held.size) * WORD
            return Plan("separate", why, f"{each}, in machine code", run_lists.PARTITION * WORD, size, limit, it)
    elif not pattern.reuse:
        why = "events may not be used again, so what counts is known only when earlier matches are"
    return Plan("apart", why, f"{each}, in Python", PLAIN_RUN, PLAIN_RUN, limit, it)


def _states(count: int) -> str:
    return f"{count:,} state{'s' * (count != 1)}"


__all__ = ["Plan", "plan"]
