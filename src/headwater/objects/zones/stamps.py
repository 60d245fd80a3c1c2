"""Stamps of an owner's changes: by its clock, always forward, never within a time of which it said that all is told.

An owner that is asked about a time that its clock has not reached yet moves its stamps there, so that it can answer at
once: the clocks differ by no more than their stated errors, and neither do the stamps. A clock that is further ahead
than that is not followed.
"""

from __future__ import annotations


class Stamps:
    """Gives stamps that only grow; `error` is how far the clocks of this federation may be from the true time."""

    def __init__(self, last: int, error: int) -> None:
        self.last = last
        self.error = error

    def change(self, now: int) -> int:
        """The stamp of a change: later than all before, and than every promise."""
        self.last = max(now, self.last + 1)
        return self.last

    def promise(self, now: int, through: int = 0) -> int:
        """A time through which no change will follow any more: `through`, if the clocks allow, or later."""
        self.last = max(now, self.last, through if through <= now + 2 * self.error else 0)
        return self.last
