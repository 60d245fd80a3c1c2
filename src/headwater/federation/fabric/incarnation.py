"""The number of a node's run, its incarnation: what a node says is of one run of it, and each run has a greater number.

It is taken from the clock, for most nodes keep nothing. But a clock may be set back between two runs. A node with a
state remembers its last number, and takes a greater one. Of one without, others may so hear a lesser number than
before: they ask who is there now, and believe what answers their own question (`Verifier.open`, `Membership.lives`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.store import NodeState

log = logging.getLogger("headwater.federation")

LARGEST = 2**63 - 1
_FORM = "incarnation/{}"


def next_incarnation(state: NodeState | None, name: str, now: Callable[[], int]) -> int:
    """A number greater than that of every run before that this state knows of; it is kept before it is used."""
    made = max(1, now())
    if state is None:
        return made
    kept = state.secret(_FORM.format(name))
    last = 0 if kept is None else int.from_bytes(kept, "little")
    if made <= last < LARGEST:
        log.warning(
            "node %s: the clock is %.1f s behind where it was when it was last started", name, (last - made) / 1e9
        )
        made = last + 1
    state.keep(_FORM.format(name), made.to_bytes(8, "little"))
    return made
