"""The logs of a node: one for each of its channels that is logged, opened with the first source there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.names import Pattern
from headwater.channel.services import Service
from headwater.errors import ClosedError, StoreError
from headwater.extras import require
from headwater.store.log.settings import Log

if TYPE_CHECKING:
    from headwater.channel.backlog.contract import RememberedChannel
    from headwater.store.log.channel_log import ChannelLog
    from headwater.store.log.reader import ChannelReader, Scan
    from headwater.types import EventType

log = logging.getLogger("headwater")
OWN = "headwater."  # channels on which a node speaks of itself
NAMED = 5  # channels that a warning names


class Earlier(Protocol):
    """What a source had published at other nodes, before it came here."""

    upto: int  # its last event there

    def scan(self, after: int, upto: int) -> Scan | None: ...
    def first(self) -> int | None:
        """Its first event that there still is."""
        ...


class NodeLogs(Service):
    """Of one node, as one of its services; `settings` say where they are, and which channels are logged."""

    name = "logs"

    def __init__(self, settings: Log, node: str) -> None:
        require("arrow", "a node with a log")
        self.settings, self.node = settings, node
        patterns = (settings.channels,) if isinstance(settings.channels, str) else settings.channels
        self._patterns = [Pattern(each) for each in patterns]
        self._open: dict[str, ChannelLog] = {}
        self._ending: dict[str, ChannelLog] = {}  # of channels that are closed, and that are not let go of yet
        self._lock = threading.Condition()
        self._closed = False
        self.handed: dict[tuple[str, str], Earlier] = {}  # by channel and source

    def wants(self, channel: str) -> bool:
        """Whether a channel of that name is logged."""
        return not channel.startswith(OWN) and any(each.matches(channel) for each in self._patterns)

    def of(self, channel: RememberedChannel) -> ChannelLog | None:
        """The log of a channel, if it has one; StoreError if it cannot be opened."""
        return self.opened(channel.name, channel.type) if self.wants(channel.name) else None

    def opened(self, channel: str, type: EventType | None) -> ChannelLog:
        """The log of a channel that is logged, by its name and type."""
        self.wait_for_end(channel)
        with self._lock:
            if self._closed:
                raise ClosedError(f"log of {channel}: node {self.node!r} is closed; open another")
            from headwater.store.log.channel_log import ChannelLog  # late: a node without a log needs none of it

            found = self._open.get(channel)
            if found is None or found.type != type:
                if found is not None:  # the channel was closed, and another has its name
                    found.close(until=0.0, why="")  # opening it again brings to rest what it has, in the background
                    del self._open[channel]
                found = ChannelLog.open(self.settings, channel, self.node, type)
                self._open[channel] = found
                if found.recovered is not None:
                    log.warning("node %s: the log of %s was recovered: %s", self.node, channel, found.recovered)
            return found

    def known(self, channel: str) -> ChannelLog | None:
        """The log of a channel of that name, if it is open. No lock is needed: who reads the past may hold a source's,
        and another log may just be opened, which takes its time."""
        return self._open.get(channel)

    def reader(self, channel: str) -> ChannelReader | None:
        """What reads this node's part of a channel's log, whether that is open or not; None if there is none yet."""
        from headwater.store.log.layout import ChannelFolder
        from headwater.store.log.reader import ChannelReader

        there = ChannelFolder.of(self.settings.folder, channel).common_metadata.exists()
        return ChannelReader(self.settings.folder, channel, nodes=(self.node,)) if there else None

    def id_of(self, channel: str) -> str:
        """The id of this node's log of a channel, by which it is known again; made if there is none yet."""
        found = self.known(channel)
        if found is not None:
            return found.id
        from headwater.store.log.layout import ChannelFolder, log_id

        folder = ChannelFolder.of(self.settings.folder, channel).node(self.node)
        return log_id(folder) if folder.path.exists() else ""

    def release(self, channel: str) -> ChannelLog | None:
        """The log of a channel that is closed, if it has one: its files are not kept open for good. It is to be ended
        then, by who holds no locks."""
        with self._lock:
            found = self._open.pop(channel, None)
            if found is not None:
                self._ending[channel] = found
            return found

    def wait_for_end(self, channel: str) -> None:
        """Return when no log of a channel of that name is about to end."""
        with self._lock:
            while channel in self._ending:
                self._lock.wait()

    def end(self, released: ChannelLog) -> None:
        """Bring it to rest and let go of it."""
        try:
            released.close()
        except StoreError as error:
            log.error("node %s: %s", self.node, error)
        finally:
            with self._lock:
                del self._ending[released.channel]
                self._lock.notify_all()

    def stop(self) -> None:
        """Let go of them all, at rest as far as there is time for that (`Log.rest_seconds`, for all together); what was
        written can still be read. `StoreError`, in the end, if one could not be synced."""
        with self._lock:
            self._closed = True
            found = list(self._open.values())
        problem: StoreError | None = None
        until = monotonic() + self.settings.rest_seconds
        left: list[str] = []  # for which there was no time at all
        for each in found:
            try:
                if monotonic() < until:
                    each.close(until=until)
                elif not each.close(until=until, why=""):
                    left.append(each.channel)
            except StoreError as error:
                problem = problem or error
        if left and self.settings.rest_seconds:
            log.warning(
                "node %s: closed with the logs of %d channels not at rest as Parquet (%s%s): rest_seconds are over; "
                "nothing is lost: opening them again, or `headwater log rest`, brings them to rest",
                self.node, len(left), ", ".join(left[:NAMED]), ", …" if len(left) > NAMED else "",
            )  # fmt: skip
        with self._lock:
            while self._ending:
                self._lock.wait()
        if problem is not None:
            raise problem

    def report(self) -> Mapping[str, Any]:
        with self._lock:
            return {"folder": str(self.settings.folder), "open": sorted(self._open)}


__all__ = ["Log", "NodeLogs"]
