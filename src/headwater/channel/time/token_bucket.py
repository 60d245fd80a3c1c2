"""A token bucket, in whole numbers: exact, however long it is in use. Time is an argument, so it may be any clock's."""

from __future__ import annotations

Packed = tuple[int, int, list[tuple[int, int]], int]  # see `Rate.packed`
PER_MILLE = 1000  # reserves are whole thousandths of the burst
EVENT = 10**15  # what one event costs: a millionth of an event a second gives one unit in a nanosecond


class TokenBucket:
    """Holds up to `burst` tokens, and gains as many in a second as the rate says. One thread at a time.

    A clock that is set back costs nothing and gives nothing: the bucket goes on from there."""

    __slots__ = ("_at", "_capacity", "_floors", "_gain", "_level")

    def __init__(self, packed: Packed) -> None:
        self._gain, burst, reserves, _ = packed
        self._capacity = self._level = burst * EVENT
        self._at: int | None = None
        # By priority, ascending: what those below it must leave.
        self._floors = [(priority, self._capacity * share // PER_MILLE) for priority, share in sorted(reserves)]

    def take(self, now: int, events: int, priority: int = 0) -> int:
        """How many of so many events of a priority may go now (nanoseconds): these are taken out."""
        self._refill(now)
        room = self._level - self.floor(priority)
        taken = min(events, room // EVENT) if room > 0 else 0
        self._level -= taken * EVENT
        return taken

    def floor(self, priority: int) -> int:
        """What events of a priority must leave in it. One event may always go when it is full."""
        kept = max((floor for least, floor in self._floors if least > priority), default=0)
        return min(kept, self._capacity - EVENT)

    def wait(self, now: int, priority: int = 0) -> int:
        """In how many nanoseconds an event of that priority may go; 0 if now."""
        self._refill(now)
        missing = EVENT + self.floor(priority) - self._level
        return 0 if missing <= 0 else -(-missing // self._gain)

    def spend(self, events: int) -> None:
        """So many events go, whether there is enough for all of them or not: what comes next waits the longer."""
        self._level -= events * EVENT

    def _refill(self, now: int) -> None:
        if self._at is not None and now > self._at:
            self._level = min(self._capacity, self._level + self._gain * (now - self._at))
        self._at = now


__all__ = ["EVENT", "PER_MILLE", "Packed", "TokenBucket"]
