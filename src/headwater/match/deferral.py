"""A matching that is made when the first event comes: where interests come faster than events, few of them are made."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from headwater.match.matcher import Matcher
from headwater.match.matching import Matching


class Later:
    """The matching of a matcher's entries as they are when it is first used; any thread may use it.

    Entries that were added since it was made are in it as well: whoever hands it out sees to it that they do no harm,
    and makes another one before entries are to be out of it for certain."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher

    @cached_property
    def now(self) -> Matching:
        """The value, made now if it was not asked for yet."""
        return self._matcher.snapshot()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


__all__ = ["Later"]
