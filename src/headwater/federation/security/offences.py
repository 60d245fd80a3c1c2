"""What came that should not have: counted by who sent it, said in the log, and that is all it can do."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from headwater.errors import FrameError, SecurityError

if TYPE_CHECKING:
    from headwater.federation.security.envelope import Opened

log = logging.getLogger("headwater.federation")

MOST_OFFENDERS = 1000  # offenders that are told apart: what they call themselves is up to them
REASON_CHARACTERS = 300  # characters of what was wrong
REST = "others"
UNKNOWN = "unknown"
# Refusals of senders whose signature was right, so that the key they are named by is theirs.
PROVEN = frozenset({"name", "password", "rule", "sender", "unknown"})


class Offences(Counter[str]):
    """By offender: the id of a node, `… (unproven)` if it only says to be that, or the address of a connection."""

    def __init__(self, node: str = "") -> None:
        super().__init__()
        self._node = node
        self.last: dict[str, str] = {}  # what was wrong with the last, by offender

    def note(self, who: str, what: str) -> None:
        """One more. Of many by one offender, ever fewer are said in the log."""
        name = who if who in self or len(self) < MOST_OFFENDERS else REST
        self[name] += 1
        self.last[name] = what if len(what) <= REASON_CHARACTERS else f"{what[:REASON_CHARACTERS]}…"
        count = self[name]
        if count & (count - 1) == 0:
            often = f" (number {count:,})" if count > 1 else ""
            log.warning("node %s: refused, of %s%s: %s", self._node, name, often, what)

    def blame(self, opened: Opened | None, error: SecurityError | FrameError) -> None:
        """What was signed properly and says nonsense is an offence of who has signed it."""
        known = None if opened is None or isinstance(error, SecurityError) else opened.sender
        self.note(known or who_sent(error), str(error))


def who_sent(error: Exception) -> str:
    """The offender that an error names; nothing is proven of it but what its signature proves."""
    if not isinstance(error, SecurityError) or not error.offender:
        return UNKNOWN
    who = error.offender if len(error.offender) <= 100 else f"{error.offender[:100]}…"
    return who if error.reason in PROVEN else f"{who} (unproven)"


def place_of(remote: str) -> str:
    """Where a stream comes from, without its port, which is another one every time."""
    head, colon, port = remote.rpartition(":")
    return head if colon and port.isdigit() else remote


__all__ = ["UNKNOWN", "Offences", "place_of", "who_sent"]
