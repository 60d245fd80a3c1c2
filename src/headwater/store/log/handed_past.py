"""The past of sources that have come from other nodes: a log of its own beside the node's, for what is sent again.

A source that goes on at another node takes its past along, for sinks that are behind. Each event is in the log of the
node where it was published, and so once in all logs together; the copy is none of them: it lies where nobody looks who
reads a log, and is read by lanes and latecomers only. It is a log like any other, with the same settings, and so comes
to rest and is removed by age or size in the same way.

    ROOT/.moved/<channel>/...      sources are called there by the key under which sinks keep how far they are
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.store.log.channel_log import ChannelLog
from headwater.store.log.layout import ChannelFolder
from headwater.store.log.reader import ChannelReader
from headwater.threads import Supervised

if TYPE_CHECKING:
    from headwater.store.log.reader import Scan
    from headwater.store.log.settings import Log
    from headwater.types import EventType

FOLDER = ".moved"


class HandedPast:
    """Of one node. One thread at a time writes the past of a channel; others may read meanwhile."""

    def __init__(self, settings: Log, node: str) -> None:
        self._settings = replace(settings, path=Path(settings.folder) / FOLDER, rest_seconds=0)
        self._node = node
        self._lock = threading.Lock()
        self._writing: dict[str, threading.Lock] = {}  # by channel

    def _turn(self, channel: str) -> threading.Lock:
        with self._lock:
            return self._writing.setdefault(channel, threading.Lock())

    @contextmanager
    def opened(self, channel: str, type: EventType | None) -> Iterator[ChannelLog]:
        """To write more of it. It is closed, and what was written synced, by a thread of its own: who has written it
        goes on. What waits there comes to rest when it is opened the next time."""
        turn = self._turn(channel)
        turn.acquire()
        try:
            found = ChannelLog.open(self._settings, channel, self._node, type)
        except BaseException:
            turn.release()
            raise
        try:
            yield found
        except BaseException:
            self._close(found, turn)
            raise
        Supervised(partial(self._close, found, turn), f"headwater-{self._node}-past").start()

    def _close(self, found: ChannelLog, turn: threading.Lock) -> None:
        try:
            found.close(until=0.0, why="")
        finally:
            turn.release()

    def stop(self) -> None:
        """Return when nobody writes."""
        with self._lock:
            turns = list(self._writing.values())
        for turn in turns:
            with turn:
                pass

    def scan(self, channel: str, key: str, after: int, upto: int, rows: int) -> Scan | None:
        """The events of a source, by its key, that were published elsewhere; None if there are none."""
        if not ChannelFolder.of(self._settings.folder, channel).common_metadata.exists():
            return None
        reader = ChannelReader(self._settings.folder, channel, nodes=(self._node,))
        return reader.read(node=self._node, source=key, after=after, upto=upto, rows=rows)


__all__ = ["HandedPast"]
