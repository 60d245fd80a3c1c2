"""Which elements an event fits by itself, its time, its key, and whether it is a row: asked of an event or of a batch.

    Letter    a set of elements as a word: bit k is element k

Machine code answers; `Interpreted` asks the reference interpreter instead, for tests of everything that comes after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.interest import RECORDS, Interest
from headwater.ir import interp
from headwater.ir.interp import EventContext
from headwater.late import np, pa
from headwater.patterns import model
from headwater.types.model import TIMESTAMP_MAX, TIMESTAMP_MIN

WORTH_COMPILING = 64  # events; one program for all conditions is made then as well (`record_reading.py`)


@dataclass(frozen=True, slots=True)
class Judged:
    """Of one event. `time` and `key` are None where there is none; `key` is raw."""

    letter: int
    row: bool
    time: int | None
    key: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class JudgedBatch:
    """Of a batch: arrays of int64 and truth values by row; `keys` is the RecordBatch of the keys of rows that have one,
    None without partitions."""

    letters: Any
    rows: Any
    times: Any
    timed: Any
    keyed: Any
    keys: Any


class Letters:
    """By machine code, of one channel."""

    def __init__(self, pattern: model.Pattern, channel: model.Channel, wanted: int) -> None:
        self.channel = channel
        self.here = here = [
            (at, element.condition)
            for at, element in enumerate(pattern.elements)
            if wanted >> at & 1 and channel.name in element.channels
        ]
        self.always = sum(1 << at for at, condition in here if condition is None)
        self.conditions = [(at, self.start(c)) for at, c in here if c is not None]
        self.among = None if channel.among is None else self.start(channel.among)
        self.time = None if channel.time is None else self.start(channel.time)
        self.key = None if channel.key is None else self.start(channel.key)

    def start(self, interest: Interest) -> Any:
        return interest.native(after=WORTH_COMPILING)

    def passes(self, running: Any, record: Any, meta: EventContext) -> bool:
        return bool(running.run(record, meta).status is interp.Status.PASSED)

    def output(self, running: Any, record: Any, meta: EventContext) -> Mapping[str, Any] | None:
        outcome = running.run(record, meta)
        if outcome.status is not interp.Status.PASSED or outcome.output is None:
            return None
        made = outcome.output
        if isinstance(made, RECORDS):
            from headwater.types.event_type import event_type

            return event_type(running.program.output).decode_raw(made)
        found: Mapping[str, Any] = made
        return found

    def form(self, record: Any) -> Any:
        """What conditions are asked of, from a record, an event or its raw form."""
        return record if isinstance(record, RECORDS) else self.channel.type.encode(record)

    def judge(self, record: Any, meta: EventContext, letter: int | None = None) -> Judged:
        """`letter` is what a matcher has found out already."""
        form = self.form(record)
        time: int | None = meta.time
        if self.time is not None:
            made = self.output(self.time, form, meta)
            time = None if made is None else made["time"]
        if time is not None and not TIMESTAMP_MIN <= time <= TIMESTAMP_MAX:
            time = None  # no time of this calendar
        if letter is None:
            letter = self.always
            for at, running in self.conditions:
                if self.passes(running, form, meta):
                    letter |= 1 << at
        row = letter != 0 or (self.channel.all if self.among is None else self.passes(self.among, form, meta))
        key: Mapping[str, Any] | None = {}
        if self.key is not None and row:  # also without a time of its own: who goes by arrival has one for it
            key = self.output(self.key, form, meta)
        return Judged(letter, row, time, key)

    def judge_batch(self, batch: Any, meta: Mapping[str, Any]) -> JudgedBatch:
        count = batch.num_rows
        letters = np.full(count, _signed(self.always), np.int64)
        for at, running in self.conditions:
            passed = _truth(running.batch(batch, meta=meta).selection)
            letters |= np.where(passed, np.int64(_signed(1 << at)), np.int64(0))
        rows = letters != 0
        if self.among is not None:
            rows |= _truth(self.among.batch(batch, meta=meta).selection)
        elif self.channel.all:
            rows[:] = True
        times, timed = self._times(batch, meta)
        timed &= (times >= TIMESTAMP_MIN) & (times <= TIMESTAMP_MAX)
        keyed = np.ones(count, bool)
        keys = None
        if self.key is not None:
            result = self.key.batch(batch, meta=meta)
            keyed, keys = _truth(result.selection), result.output
        return JudgedBatch(letters, rows, times, timed, keyed, keys)

    def _times(self, batch: Any, meta: Mapping[str, Any]) -> tuple[Any, Any]:
        count = batch.num_rows
        times = np.zeros(count, np.int64)
        if self.time is None:
            given = meta.get("time")
            if given is None:
                return times, np.zeros(count, bool)
            if not isinstance(given, (int, np.integer)):
                given = given.cast("int64").to_numpy(zero_copy_only=False) if isinstance(given, pa.Array) else given
            times[:] = given
            return times, np.ones(count, bool)
        result = self.time.batch(batch, meta=meta)
        timed = _truth(result.selection)
        times[timed] = result.output.column("time").cast("int64").to_numpy(zero_copy_only=False)
        return times, timed


class Interpreted(Letters):
    """By the reference interpreter."""

    def start(self, interest: Interest) -> Any:
        return interest

    def passes(self, running: Any, record: Any, meta: EventContext) -> bool:
        return interp.run(running.program, record, meta=meta, params=running.params).passed

    def output(self, running: Any, record: Any, meta: EventContext) -> Mapping[str, Any] | None:
        outcome = interp.run(running.program, record, meta=meta, params=running.params)
        return outcome.output if outcome.passed else None

    def form(self, record: Any) -> Any:
        type = self.channel.type
        return type.decode_raw(record) if isinstance(record, RECORDS) else type.to_raw(record)

    def judge_batch(self, batch: Any, meta: Mapping[str, Any]) -> JudgedBatch:
        """Row by row."""
        raws = self.channel.type.arrow_to_raw(batch)
        found = [self.judge(raw, context(meta, at)) for at, raw in enumerate(raws)]
        keyed = [it.row and it.time is not None and it.key is not None for it in found]
        keys = None
        if self.key is not None:
            type = self.channel.key.output if self.channel.key is not None else None
            assert type is not None
            keys = type.to_arrow([it.key for it, so in zip(found, keyed, strict=True) if so])
        return JudgedBatch(
            np.array([_signed(it.letter) for it in found], np.int64),
            np.array([it.row for it in found], bool),
            np.array([it.time or 0 for it in found], np.int64),
            np.array([it.time is not None for it in found], bool),
            np.array(keyed, bool),
            keys,
        )


def context(meta: Mapping[str, Any], at: int) -> EventContext:
    """What is known of one row of a batch: each value is for all rows, or a list or array with one for each."""

    def value(name: str) -> Any:
        given = meta.get(name)
        if given is None or isinstance(given, (str, int)):
            return given
        found = given[at]
        return found.as_py() if hasattr(found, "as_py") else found.item() if hasattr(found, "item") else found

    return EventContext(value("source"), value("node"), value("seq"), value("time"))


def _truth(selection: Any) -> Any:
    found = selection.fill_null(False) if selection.null_count else selection
    return found.to_numpy(zero_copy_only=False)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


__all__ = ["Interpreted", "Judged", "JudgedBatch", "Letters", "context"]
