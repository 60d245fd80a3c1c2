"""What was seen before is not taken again: a window over counters that lets messages overtake each other a little."""

from __future__ import annotations

WINDOW_COUNTERS = 1024  # how far behind the newest counter one that was not seen yet is still taken


class Window:
    """The counters of one sender that were seen. Not thread-safe: whoever has it also has the lock.

    `fresh` says whether a counter is new, `mark` makes it seen. The two are apart because a counter may only be marked
    when the message that carries it has proven to be genuine: else a forged one would shut out the real one.
    """

    __slots__ = ("_seen", "newest", "width")

    def __init__(self, width: int = WINDOW_COUNTERS) -> None:
        if not 64 <= width <= 65_536:
            raise ValueError(f"width: expected 64 to 65536, found {width}")
        self.width = width
        self.newest = 0  # counters begin at 1
        self._seen = 0  # bit k: newest - k was seen

    def fresh(self, counter: int) -> bool:
        """Whether this counter has not been seen and is not too old to know."""
        behind = self.newest - counter
        if behind < 0:
            return True
        return counter > 0 and behind < self.width and not self._seen >> behind & 1

    def mark(self, counter: int) -> None:
        """This counter, which is fresh, is seen from now on."""
        ahead = counter - self.newest
        if ahead <= 0:
            self._seen |= 1 << -ahead
            return
        # Not one shift by a number that the sender chose: it could be asked to fill the memory.
        self._seen = (self._seen << ahead | 1) & ((1 << self.width) - 1) if ahead < self.width else 1
        self.newest = counter

    def seen_to(self, counter: int) -> None:
        """All counters up to this one are seen, or not to be taken any more."""
        if counter > self.newest:
            self.newest, self._seen = counter, (1 << self.width) - 1
