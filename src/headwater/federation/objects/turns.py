"""What other nodes ask for, run in the queue of this node's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import ObjectError
from headwater.objects.operations import Outcome, Transaction

if TYPE_CHECKING:
    from headwater.channel.objects.service import Objects
    from headwater.objects.operations import Administer

WAIT_SECONDS = 5.0  # for the turn of it


def run(objects: Objects, operation: Administer) -> Outcome:
    """In the queue, as everything; its outcome, if it was done."""
    item = objects.engine.submit(Transaction((operation,)), waits=True)
    outcome: Outcome | None = item.wait(WAIT_SECONDS)
    if outcome is None:
        raise ObjectError("expected it to be done soon, found a long turn before it; ask again")
    return outcome.check()


__all__ = ["run"]
