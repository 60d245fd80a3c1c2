"""What Spark keeps of a group of partitions between the batches of a stream: rows that wait, promises, and a runner.

Rows wait until all sources that are known have promised to have nothing older; then they are fed in order, as in a
batch. The state is one value: bytes that say all of it, so that after a restart it goes on as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import ExecutionError
from headwater.late import np, pa, pc
from headwater.patterns.run.result_batches import ResultBatches
from headwater.patterns.run.results import Results
from headwater.patterns.run.runner import Runner
from headwater.spark.patterns import runs
from headwater.spark.patterns.sending import BEFORE, NEVER, TIME, Promise, Sent, ids, loaded, read, senders, stored

VERSION = 1
_ID = "_i"  # the column of sources' ids
_ORDER = [(name, "ascending") for name in (TIME, _ID, runs.SEQ, runs.RANK)]


class _State(msgspec.Struct, array_like=True):
    """`groups` is how many there were when it was made: with another number keys would fall elsewhere."""

    version: int
    groups: int
    promises: list[tuple[int, str | None, str, int | None]]
    latest: list[tuple[str, int]]
    released: int
    late: int
    waiting: bytes
    runner: bytes


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgpack_decoder(_State)


@dataclass(slots=True)
class _Kept:
    """One runner of a worker: it takes the place of each group in turn. `empty` is that of a group's beginning."""

    runner: Runner
    results: ResultBatches
    empty: bytes


@lru_cache(maxsize=4)
def _kept(package: bytes, fingerprint: bytes, identified: bool) -> _Kept:
    pattern = runs.unpack(package)
    runner = Runner(pattern)
    results = ResultBatches(Results(pattern, fingerprint, identified=identified), runner.channels)
    return _Kept(runner, results, runner.snapshot({}))


class Group:
    """Of one group, in one batch: `take` what was sent to it, then `release`, then `dump` what is kept."""

    def __init__(
        self, package: bytes, fingerprint: bytes, groups: int, state: bytes | None = None, *, identified: bool = True
    ) -> None:
        self._kept = _kept(package, fingerprint, identified)
        self.pattern = self._kept.runner.pattern
        self.groups = groups
        self.promises: dict[Promise, int | None] = {}
        self.latest: dict[str, int] = {}
        self.released, self.late = NEVER, 0
        self._waiting: list[Any] = []
        self._runner = self._kept.empty
        if state is not None:
            self._load(state)

    def _load(self, state: bytes) -> None:
        try:
            found = _DECODER.decode(state)
            if found.version != VERSION:
                raise ExecutionError(f"checkpoint: expected state of version {VERSION}, found {found.version}")
            self._waiting = loaded(found.waiting) if found.waiting else []
        except (msgspec.MsgspecError, pa.ArrowException) as error:
            raise ExecutionError(
                f"checkpoint: expected the state of a pattern, found something else: {error}"
            ) from None
        if found.groups != self.groups:
            raise ExecutionError(
                f"checkpoint: expected groups={found.groups}, as when this query was first started, found "
                f"groups={self.groups}; give match the same number, or use another checkpointLocation"
            )
        self.promises = {(channel, node, source): time for channel, node, source, time in found.promises}
        self.latest = dict(found.latest)
        self.released, self.late, self._runner = found.released, found.late, found.runner

    def take(self, sent: Iterable[bytes]) -> None:
        """All that was sent to this group in a batch: rows first, whatever the order, then promises."""
        packages = [read(each) for each in sent]
        for package in packages:
            if package.rows:
                self._waiting += (self._in_time(batch) for batch in loaded(package.rows))
        for package in packages:
            self._promised(package)

    def _in_time(self, rows: Any) -> Any:
        """Without rows that are older than one that their source sent before, by more than it may be late, or older
        than what was released already, as those of a source that was not known then."""
        times, before = (rows.column(name).to_numpy(zero_copy_only=False) for name in (TIME, BEFORE))
        sources = senders(rows).dictionary_encode()
        latest = np.array([self.latest.get(source, NEVER) for source in sources.dictionary.to_pylist()], np.int64)
        before = np.maximum(before, latest[sources.indices.to_numpy(zero_copy_only=False)])
        least = np.where(before > NEVER + self.pattern.lateness, before - self.pattern.lateness, NEVER)
        good = times >= np.maximum(least, self.released)
        self.late += int((~good).sum())
        rows = rows.drop_columns([BEFORE])
        return rows if good.all() else rows.filter(pa.array(good))

    def _promised(self, sent: Sent) -> None:
        for channel, node, source, time in sent.promises:
            known = self.promises.setdefault((channel, node, source), time)
            if time is not None and (known is None or known < time):
                self.promises[channel, node, source] = time
        for source, time in sent.latest:
            self.latest[source] = max(time, self.latest.get(source, time))

    def release(self) -> list[bytes]:
        """Feed what no source can have anything older than; batches of the matches that there are then."""
        promised = [NEVER if time is None else time for time in self.promises.values()]
        until = min(promised, default=NEVER)
        if until <= self.released:
            return []
        self.released = until
        ready = self._ready(until)
        runner = self._kept.runner
        if not ready and (self._runner == self._kept.empty or not runner.timed):
            return []
        try:
            runner.restore(self._runner)
        except ExecutionError as error:
            raise ExecutionError(
                f"{error}; a query goes on with the pattern and parameters it was started with: use another "
                "checkpointLocation for another"
            ) from None
        for batch in ready:
            runner.ordered(runs.parts(self.pattern, batch))
        runner.advance((until, ""))
        found = [stored([batch]) for batch in runs.batches_of(runner, self._kept.results)]
        runs.check_whole(runner)
        self._runner = runner.snapshot({})
        return found

    def _ready(self, until: int) -> list[Any]:
        """Rows before a time, in order; the others wait on."""
        if not self._waiting:
            return []
        rows = pa.Table.from_batches(self._waiting)
        ready = pc.less(rows.column(TIME), until)
        waiting = rows.filter(pc.invert(ready)).combine_chunks()
        self._waiting = [batch for batch in waiting.to_batches() if batch.num_rows]
        found = rows.filter(ready)
        found = (
            found.append_column(_ID, ids(found)).sort_by(_ORDER).drop_columns([TIME, runs.RANK, _ID]).combine_chunks()
        )
        return [batch for batch in found.to_batches() if batch.num_rows]

    def dump(self) -> bytes:
        """What is kept until the next batch."""
        state = _State(
            VERSION,
            self.groups,
            [(*who, time) for who, time in self.promises.items()],
            list(self.latest.items()),
            self.released,
            self.late,
            stored(self._waiting) if self._waiting else b"",
            self._runner,
        )
        return _ENCODER.encode(state)
