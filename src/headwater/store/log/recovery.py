"""Opening a node's part of a log after whatever ended the last process that had it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from headwater.store.log import schema, wal
from headwater.store.log.layout import AtRest, NodeFolder, claim, log_id, put_aside, sync_folder
from headwater.store.log.parquet_segment import at_rest_by_files, damaged, last_segment
from headwater.types import EventType


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was cut off the end of a file when it was opened: a block that was being written when everything ended."""

    file: Path
    bytes: int
    why: str

    def __str__(self) -> str:
        return f"log {os.fspath(self.file)!r}: {self.bytes} bytes cut off its end, {self.why}"


@dataclass(slots=True)
class State:
    """What is known of a node's part of a channel when it has been opened."""

    claim: int  # the descriptor that holds it
    id: str
    recovered: Recovered | None
    last: dict[str, int]  # sequence number of each source
    times: dict[str, int]  # nanoseconds
    sealed: list[int]  # segments that can come to rest
    tail: wal.Segment | None  # the segment that can be continued
    next: int  # the number of a new one


def recover(folder: NodeFolder, type: EventType | None) -> State:
    """Claim the folder, cut what is torn, and find out how far every source is. What is made anew for that need not be
    on the disk: it is part of the `Foundation` of what is appended."""
    held = claim(folder)
    try:
        return _recover(folder, type, held)
    except BaseException:
        os.close(held)
        raise


def _recover(folder: NodeFolder, type: EventType | None, held: int) -> State:
    """Find out how far the log of a node had come, after whatever has happened: damage is refused before anything is
    changed; what something unfinished has left behind is removed or put aside; then segment by segment."""
    found = [(segment, wal.read(path)) for segment, path in folder.wals()]
    for _, each in found:  # before anything is changed
        if each.damage:
            raise damaged(each)
    schema.admit(folder.channel, type, sync=False)
    for file in folder.path.glob(".*.tmp"):
        file.unlink()
    put_aside(folder.channel)
    at_rest = AtRest.read(folder.sources)
    if at_rest is None:
        known = folder.id.exists() or last_segment(folder)
        at_rest = at_rest_by_files(folder) if known else AtRest(0, {})
        at_rest.write(folder.sources, sync=bool(known))
    state = State(held, log_id(folder, sync=False), None, {}, {}, [], None, 0)
    for name, (seq, time) in (at_rest.sources or {}).items():
        state.last[name], state.times[name] = seq, time * wal.NANOS
    state.next = max([at_rest.segment, *(segment for segment, _ in found)]) + 1
    for segment, each in found:
        _take(state, segment, each)
    if found and state.sealed and state.sealed[-1] == found[-1][0]:
        header = found[-1][1].header
        if header is not None and header.type == type:
            state.tail = found[-1][1]
            state.sealed.pop()
    return state


def _take(state: State, segment: int, found: wal.Segment) -> None:
    """Count a segment in, without what is torn of it."""
    if found.torn is not None:
        if found.torn.bytes:
            state.recovered = Recovered(found.path, found.torn.bytes, found.torn.why)
        if found.header is None:
            found.path.unlink()
            sync_folder(found.path.parent)
            return
        os.truncate(found.path, found.end)
        found.torn = None
    for name, (_, last, _) in found.spans.items():
        if last > state.last.get(name, 0):
            state.last[name] = last
            state.times[name] = found.last_times[name] * wal.NANOS
    state.sealed.append(segment)
    found.data = memoryview(b"")  # up to `roll_bytes` each, and nothing more is read from it
