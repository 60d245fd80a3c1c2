"""What has gone wrong in the node's own work and is tried again: counted, logged, and shown until it succeeds."""

from __future__ import annotations

import logging
import threading

log = logging.getLogger("headwater.federation")
FIRST_PAUSE_SECONDS = 0.05  # until what has failed is tried again; twice as long each time
LONGEST_PAUSE_SECONDS = 5.0


class Failures:
    """Of one node, by what it was about: a channel, or a channel at a peer."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._lock = threading.Lock()
        self._found: dict[str, tuple[int, str]] = {}  # how often in a row, and the last error

    def failed(self, about: str, error: Exception) -> float:
        """Note a failure; how many seconds to wait before the next attempt."""
        with self._lock:
            times = self._found.get(about, (0, ""))[0] + 1
            self._found[about] = times, f"{type(error).__name__}: {error}"
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(times - 1, 16))
        log.error(
            "node %s: %s: %s: %s; attempt %d, the next in %g s",
            self._node,
            about,
            type(error).__name__,
            error,
            times,
            pause,
            exc_info=error,
        )
        return pause

    def succeeded(self, about: str) -> None:
        if self._found:
            with self._lock:
                self._found.pop(about, None)

    def present(self) -> dict[str, str]:
        """What fails at present, and how."""
        with self._lock:
            return {about: f"{text} ({times} times)" for about, (times, text) in sorted(self._found.items())}
