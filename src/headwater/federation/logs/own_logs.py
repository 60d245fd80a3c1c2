"""A node's own part of the logs in a folder, which other nodes may share: what it answers questions about."""

from __future__ import annotations

import os
import threading
from functools import cached_property
from typing import Any

from headwater.late import pa
from headwater.store.log.layout import AtRest, ChannelFolder, channels
from headwater.store.log.reader import ChannelReader, Scan, Span
from headwater.store.log.schema import Table

ROWS = 65_536


class Part:
    """What a node has logged of one channel, as it is at this moment."""

    def __init__(self, reader: ChannelReader, node: str, folder: ChannelFolder) -> None:
        self._reader, self._node, self._folder = reader, node, folder

    @cached_property
    def table(self) -> Table:
        return self._reader.table

    @property
    def type(self) -> Any:
        return self.table.type

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def id(self) -> str:
        """Of this log: another one is another log, with other sequence numbers."""
        return self._folder.node(self._node).id.read_text("ascii").strip()

    def sources(self) -> list[Span]:
        return self._reader.sources()

    def last(self, source: str) -> int | None:
        """The last sequence number of a source, also if retention has removed all of it; None if there never was
        anything."""
        found = next((span.last for span in self.sources() if span.source == source), None)
        if found is None:
            known = AtRest.read(self._folder.node(self._node).sources)
            found = (known.sources or {}).get(source, (None, 0))[0] if known is not None else None
        return found

    def scan(self, source: str, after: int, upto: int, columns: list[str] | None) -> Scan:
        return self._reader.read(node=self._node, source=source, after=after, upto=upto, columns=columns, rows=ROWS)


class OwnLogs:
    """The parts that a node has."""

    def __init__(self, root: str | os.PathLike[str], node: str) -> None:
        self._root, self.node = root, node
        self._readers: dict[str, ChannelReader] = {}
        self._lock = threading.Lock()

    def channels(self) -> list[str]:
        return [name for name in channels(self._root) if self._has(name)]

    def _has(self, channel: str) -> bool:
        folder = ChannelFolder.of(self._root, channel)
        return folder.node(self.node).id.exists() and folder.common_metadata.exists()

    def part(self, channel: str) -> Part | None:
        """None where it has logged nothing of the channel."""
        if not self._has(channel):
            return None
        with self._lock:
            reader = self._readers.get(channel)
            if reader is None:
                reader = self._readers[channel] = ChannelReader(self._root, channel, nodes=[self.node])
        return Part(reader, self.node, ChannelFolder.of(self._root, channel))
