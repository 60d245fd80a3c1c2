"""A run of a pattern: events of its channels in, matches out.

    runner = Runner(pattern)
    runner.offer("door", record, EventContext("n1", "n1", 7, time))
    runner.batch("door", batch, {"source": "n1", "seq": seqs, "time": times})
    runner.promise("n1", time)          none of its later events is older
    runner.matches()                    what was found since

Events are put in the order of time, then source, then number: an event waits until no source can have an earlier one.
Each source's own events promise for it: none of its later ones is older than the latest, less the pattern's lateness.
What comes after its source's promise was given up waiting for is late: dropped and counted. (A source is of
one channel, where its numbers count: those of two channels need two names, unless who feeds it tells them apart.) A
source that is to be waited for before its first event comes is named by `expect`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import msgspec

from headwater import runnable
from headwater.decoders import msgpack_decoder
from headwater.errors import ExecutionError
from headwater.ir.interp import EventContext
from headwater.late import np
from headwater.native.subset import Mode
from headwater.patterns import model
from headwater.patterns.automaton import Automaton, automaton
from headwater.patterns.crossing.marks import Mark
from headwater.patterns.engine import layout as at_
from headwater.patterns.engine.choice import EngineName, engine_for
from headwater.patterns.engine.found import Found
from headwater.patterns.engine.partitioned import signed, window_of
from headwater.patterns.run.events import Event, Events, fields_of, raw_of, source_id
from headwater.patterns.run.letters import Interpreted, Judged, Letters, context
from headwater.patterns.run.matches import Counts, Match
from headwater.patterns.run.record_reading import AMONG, HEAD, KEYED, TIMED, Reading, TooMuch
from headwater.types.model import TIMESTAMP_MAX, TIMESTAMP_MIN

KIND = "pattern"
HELD = 1 << 18  # events; from here on, and whenever they have doubled, those that no run holds are let go
READ = 1 << 12  # events whose fields are at hand
FEW = 32  # rows of a batch that are quicker one by one
DOUBTS = 1_024  # rows that came too late to be waited for, of which the times are kept
FOR_EVER = (1 << 63) - 1
NEVER = -FOR_EVER
LAST = "\U0010ffff"  # after the name of every source
Place = tuple[int, str]  # in the order of rows: a time, and the id of a source


class Waiting(NamedTuple):
    """A row that waits for its turn. Rows are in order by what stands first; no two have the same event's number."""

    time: int
    source: str
    seq: int
    channel: str
    letter: int
    number: int
    words: Sequence[int]
    values: Sequence[int]


class Runner:
    """Fed by one thread at a time. `mode` says how kernels run, `interpreted` whether conditions are asked of the
    reference interpreter, `engine` what runs it: for tests.

    With `given`, who feeds it knows how far the sources have come, and says so by `advance`: promises of sources by
    name would mistake two of one name, at two nodes, for one."""

    kind: ClassVar[str] = KIND

    def __init__(
        self,
        pattern: model.Pattern,
        *,
        mode: Mode = "compiled",
        interpreted: bool = False,
        engine: EngineName | None = None,
        given: bool = False,
    ) -> None:
        self.pattern = pattern
        self.given = given
        self.automaton: Automaton = automaton(pattern)
        self.engine: Any = engine_for(pattern, self.automaton, self._fields, mode, interpreted, engine)
        judges = Interpreted if interpreted else Letters
        self.channels = {channel.name: channel for channel in pattern.channels}
        wanted = self.automaton.reading
        self.letters = {name: judges(pattern, channel, wanted) for name, channel in self.channels.items()}
        self.events = Events()
        self.counts = Counts()
        self._all_rows = self.automaton.strict or (pattern.window is not None and pattern.window.rows is not None)
        self._promises: dict[str, int] = {}
        self._waiting: list[Waiting] = []
        self._least: Place | None = None  # the promise that all others reach, None: to be looked for
        self._released: Place = (-FOR_EVER, "")
        self.sure: Place = (-FOR_EVER, "")  # up to here nothing was released that a source may still precede
        self.doubts: list[int] = []  # times of rows that came after it was no longer waited for them
        # Stretches of time of which not all events are known, and whether that is so of all times for now.
        self.blind: list[tuple[int, int]] = []
        self.unheard = False
        self._due = FOR_EVER  # no promise of an earlier time decides anything
        self._window, self._lateness = window_of(pattern), pattern.lateness
        self._found: list[Found] = []
        self._sweep = HELD
        held = getattr(self.engine, "registers", None)
        self._remembers = held is not None and bool(held.columns)
        self._read: dict[int, tuple[dict[str, Any], EventContext]] = {}
        self._holds = self.engine.name != "apart"  # whether the engine knows which events it holds
        self._promising = bool(pattern.absent) or not self.engine.every
        self._readings = {} if interpreted else self._reading()

    def _reading(self) -> dict[str, Reading]:
        """How events of each channel are read at once, where they can be."""
        found = {}
        keys, held = self.engine.keys, getattr(self.engine, "registers", None)
        for name, channel in self.channels.items():
            columns = held.reads(channel.type.record) if held is not None and self._remembers else ()
            number = held.number if held is not None else keys.of_text
            with suppress(TooMuch):
                found[name] = Reading(self.letters[name].here, channel, columns, keys.of_text, number)
        return found

    def prepare(self) -> None:
        """Wait until machine code reads events. They may come before: they are read more slowly until then."""
        for reading in self._readings.values():
            reading.ready(wait=True)

    # ── events ──

    def offer(
        self, channel: str, record: Any, meta: EventContext, letter: int | None = None, *, time: int | None = None
    ) -> None:
        """One event: a record, an instance, a dict or a raw form. `meta` has at least its source, number and time.
        `letter` is the set of elements that it fits by itself, where a matcher has found that out already; `time` is
        that by which it is put in order, where neither the pattern nor its publication says that."""
        source, seq = meta.source, meta.seq
        if source is None or seq is None:
            raise ExecutionError(f"expected an event's source and number, found {source!r} and {seq!r}")
        counts = self.counts
        words: tuple[int, ...] | None = None
        judged: Judged | None = None
        reading = self._readings.get(channel)
        if reading is not None and type(record) is bytes and reading.ready():
            words = reading(record, meta)
        it = self._letters(channel)
        if words is None or reading is None:
            judged = it.judge(record, meta, letter)
            fits, row, keyed = judged.letter, judged.row, judged.key is not None
            time = judged.time if time is None else time
        else:
            flags = words[0]
            fits = words[1] if letter is None else letter
            row = fits != 0 or it.channel.all or flags & AMONG != 0
            if time is None:
                time = meta.time if it.time is None else words[2] if flags & TIMED else None
                if time is not None and not TIMESTAMP_MIN <= time <= TIMESTAMP_MAX:
                    time = None
            keyed = it.key is None or flags & KEYED != 0
        counts.events += 1
        if time is None:
            counts.timeless += 1
            return
        who = source_id(source, meta.node)
        late = self._is_late(it, who, time)
        if row:
            if not keyed:
                counts.keyless += 1
            elif late:
                counts.late += 1
            elif self.given and self._is_behind(time, who):
                pass
            elif fits or self._all_rows:
                counts.rows += 1
                if judged is not None:
                    key, values = self._slow_words(it, judged, record, meta)
                else:
                    assert reading is not None and words is not None
                    all_of = reading.finished(words)
                    key, values = all_of[HEAD : reading.key_end], all_of[reading.key_end :]
                self._arrive(channel, record, meta, who, time, signed_letter(fits), key, values)
                return
        if self._waiting or self._promising:
            self._release()

    def mark(self, channel: str, mark: Mark, meta: EventContext, *, time: int | None = None) -> None:
        """An event that fits no element, of which its time and key are all that is known; `time` as with `offer`."""
        source, _ = _origin(meta)
        it, counts = self._letters(channel), self.counts
        counts.events += 1
        counts.marks += 1
        if time is None:
            time = meta.time if it.time is None else mark.time
        if time is None or not TIMESTAMP_MIN <= time <= TIMESTAMP_MAX:
            counts.timeless += 1
            return
        who = source_id(source, meta.node)
        late = self._is_late(it, who, time)
        if mark.row:
            if mark.key is None:
                counts.keyless += 1
            elif late:
                counts.late += 1
            elif self.given and self._is_behind(time, who):
                pass
            elif self._all_rows:
                counts.rows += 1
                values = (0,) * (2 * len(self.engine.registers.columns)) if self._remembers else ()
                self._arrive(channel, b"", meta, who, time, 0, self.engine.keys.of_record(mark.key), values)
                return
        if self._waiting or self._promising:
            self._release()

    def _slow_words(
        self, it: Letters, judged: Judged, record: Any, meta: EventContext
    ) -> tuple[Sequence[int], Sequence[int]]:
        """The words of an event's key and what runs remember of it, value by value."""
        words = self.engine.keys.of_record(judged.key or {})
        if not self._remembers:
            return words, ()
        raw = fields_of(it.channel, record)
        return words, self.engine.registers.row(it.channel.type.record, raw, meta)

    def _arrive(
        self,
        channel: str,
        data: Any,
        meta: EventContext,
        who: str,
        time: int,
        letter: int,
        words: Sequence[int],
        values: Sequence[int],
    ) -> None:
        """A row that came by itself: it is taken at once where no source can have an earlier one. Its event is kept
        if it has to wait, or the engine holds it."""
        source, seq = meta.source, meta.seq
        assert source is not None and seq is not None
        if not self.given and not self._waiting and (time, who) <= self._reached():
            self._expect_due(time)
            if self._holds:
                if self.engine.one(letter, self.events.count, time, words, values, self._found):
                    self.events.add(Event(channel, source, seq, time, data, meta.node, meta.time))
            else:
                number = self.events.add(Event(channel, source, seq, time, data, meta.node, meta.time))
                self.engine.one(letter, number, time, words, values, self._found)
            if self.events.size > self._sweep:
                self._sweep_events()
        else:
            number = self.events.add(Event(channel, source, seq, time, data, meta.node, meta.time))
            heapq.heappush(self._waiting, Waiting(time, who, seq, channel, letter, number, words, values))
        if self._waiting or self._promising:
            self._release()

    def batch(self, channel: str, batch: Any, meta: Mapping[str, Any], upto: Place | None = None) -> None:
        """The rows of a RecordBatch. `meta` has source, seq and time, and perhaps node, each for all rows or by row.
        With `upto`, nothing else comes any more that is before this place: rows up to there need not wait."""
        it = self._letters(channel)
        count = batch.num_rows
        if count <= FEW and self._readings.get(channel) is not None and self._readings[channel].ready():
            self._offer_rows(channel, batch, meta)
            return
        self.counts.events += count
        if not count:
            return
        judged = it.judge_batch(batch, meta)
        self.counts.timeless += count - int(judged.timed.sum())
        self.counts.keyless += int((judged.timed & judged.rows & ~judged.keyed).sum())
        rows = judged.timed & judged.keyed & judged.rows
        used = rows if self._all_rows else rows & (judged.letters != 0)
        source = meta.get("source")
        if not isinstance(source, str):
            self._batch_of_many(channel, batch, meta, judged, rows, used)
            return
        seqs = _column(meta["seq"], count)
        times = judged.times
        latest = int(times[judged.timed].max()) if judged.timed.any() else None
        who = source_id(source, meta.get("node"))
        key = self._source(channel, who)
        promised = self._promises.get(key, -FOR_EVER)
        lateness = self.pattern.lateness
        so_far = np.maximum.accumulate(np.where(judged.timed, times, -FOR_EVER)) - lateness
        before = np.concatenate([[promised], np.maximum(so_far[:-1], promised)])
        late = np.zeros(count, bool)
        if not self.given or it.channel.time is not None:
            late = times < before
            if latest is not None:
                self._promise(key, latest - lateness)
        self.counts.late += int((rows & late).sum())
        at = np.flatnonzero(used & ~late)
        if self.given:
            at = at[[not self._is_behind(time, who) for time in times[at].tolist()]] if len(at) else at
        self.counts.rows += len(at)
        words = self._words(judged, at)
        kept = batch if len(at) == count else batch.take(_indices(at))
        published = None if meta.get("time") is None else _column(meta["time"], count)[at]
        first = self.events.add_batch(channel, kept, source, seqs[at], times[at], meta.get("node"), published)
        values = self._values(it, kept, source, meta, seqs[at], published)
        if self._direct(who, times[at], upto):
            rows = np.empty((len(at), 4), np.int64)
            rows[:, 0], rows[:, 1], rows[:, 3] = -1, judged.letters[at], times[at]
            rows[:, 2] = np.arange(first, first + len(at))
            self._feed(rows, words, values)
        else:
            parts = words.reshape(-1, self.engine.keys.words).tolist()
            held = [()] * len(at) if values is None else values.tolist()
            when, numbers, letters = times[at].tolist(), seqs[at].tolist(), judged.letters[at].tolist()
            for k in range(len(at)):
                place = when[k], who, numbers[k], channel
                heapq.heappush(self._waiting, Waiting(*place, letters[k], first + k, parts[k], held[k]))
        self._release()

    def _offer_rows(self, channel: str, batch: Any, meta: Mapping[str, Any]) -> None:
        """Few rows, one by one: each takes as long as an event does, where all together take some tenths of a
        millisecond however few they are."""
        count = batch.num_rows
        records = self.channels[channel].type.arrow_to_records(batch)
        sources, nodes = _each(meta.get("source"), count), _each(meta.get("node"), count)
        seqs = _column(meta["seq"], count).tolist()
        times = [None] * count if meta.get("time") is None else _column(meta["time"], count).tolist()
        for record, source, node, seq, time in zip(records, sources, nodes, seqs, times, strict=True):
            self.offer(channel, record, EventContext(source, node, seq, time))

    def _values(self, it: Letters, batch: Any, source: str, meta: Mapping[str, Any], seqs: Any, published: Any) -> Any:
        """What runs remember of the rows of a batch."""
        if not self._remembers:
            return None
        count = batch.num_rows
        times = [None] * count if published is None else published.tolist()
        metas = {"source": [source] * count, "node": [meta.get("node")] * count, "seq": seqs.tolist(), "time": times}
        return self.engine.registers.rows(it.channel.type.record, it.channel.type.conform(batch), metas)

    def _batch_of_many(
        self, channel: str, batch: Any, meta: Mapping[str, Any], judged: Any, rows: Any, used: Any
    ) -> None:
        """Rows of several sources, one after the other; those that are `used` can decide about matches."""
        words, width = self._words(judged, np.flatnonzero(judged.keyed)), self.engine.keys.words
        place = np.cumsum(judged.keyed) - 1
        it = self._letters(channel)
        for row in range(batch.num_rows):
            if not judged.timed[row]:
                continue
            about = context(meta, row)
            source, _ = _origin(about)
            time = int(judged.times[row])
            who = source_id(source, about.node)
            late = self._is_late(it, who, time)
            if late:
                self.counts.late += int(rows[row])
                continue
            if not used[row]:
                continue
            if self.given and self._is_behind(time, who):
                continue
            self.counts.rows += 1
            data = batch.slice(row, 1), 0
            part = words[place[row] * width : (place[row] + 1) * width].tolist()
            values: Sequence[int] = ()
            if self._remembers:
                values = self.engine.registers.row(it.channel.type.record, fields_of(it.channel, data), about)
            self._arrive(channel, data, about, who, time, int(judged.letters[row]), part, values)
        self._release()

    def ordered(self, parts: Iterable[tuple[str, Any, Mapping[str, Any], Any]]) -> None:
        """Rows of all sources and channels that are in order as they come, so that none has to wait: of a history that
        somebody else has sorted. A part is a channel, a batch of its rows, their meta by row (source, seq, time, node),
        and the places of the rows among those of all parts. Nothing comes later that belongs before them; `finish`
        comes after the last."""
        width = self.engine.keys.words
        rows, words, values, places = list[Any](), list[Any](), list[Any](), list[Any]()
        for channel, batch, meta, place in parts:
            it = self._letters(channel)
            judged = it.judge_batch(batch, meta)
            count = batch.num_rows
            self.counts.events += count
            self.counts.timeless += count - int(judged.timed.sum())
            self.counts.keyless += int((judged.timed & judged.rows & ~judged.keyed).sum())
            used = judged.timed & judged.keyed & judged.rows
            at = np.flatnonzero(used if self._all_rows else used & (judged.letters != 0))
            self.counts.rows += len(at)
            kept = batch if len(at) == count else batch.take(_indices(at))
            sources, nodes = (_taken(meta.get(name), at, count) for name in ("source", "node"))
            seqs, times = _column(meta["seq"], count)[at], judged.times[at]
            published = None if meta.get("time") is None else _column(meta["time"], count)[at]
            first = self.events.add_batch(channel, kept, sources, seqs, times, nodes, published)
            if self._remembers:
                columns = {"source": sources, "node": nodes, "seq": seqs, "time": published}
                metas = {name: _listed(column, len(at)) for name, column in columns.items()}
                values.append(self.engine.registers.rows(it.channel.type.record, it.channel.type.conform(kept), metas))
            part = np.empty((len(at), 4), np.int64)
            part[:, 0], part[:, 1], part[:, 3] = -1, judged.letters[at], times
            part[:, 2] = np.arange(first, first + len(at))
            rows.append(part)
            words.append(self._words(judged, at).reshape(-1, width))
            places.append(np.asarray(place)[at])
        if not rows:
            return
        order = np.argsort(np.concatenate(places), kind="stable")
        if len(order):
            fed = np.concatenate(rows)[order]
            remembered = np.concatenate(values)[order] if self._remembers else None
            self._feed(fed, np.concatenate(words)[order].reshape(-1), remembered)
            if self.pattern.absent:
                self._found += self.engine.promise(int(fed[-1, 3]))

    @property
    def timed(self) -> bool:
        """Whether time alone, without a further event, may show a match."""
        return self._promising

    def _words(self, judged: Any, at: Any) -> Any:
        """The words of the keys of some rows."""
        width = self.engine.keys.words
        if judged.keys is None:
            return np.zeros(len(at) * width, np.int64)
        words = self.engine.keys.of_batch(judged.keys).reshape(-1, width)
        place = np.cumsum(judged.keyed) - 1
        return words[place[at]].reshape(-1)

    def _letters(self, channel: str) -> Letters:
        found = self.letters.get(channel)
        if found is None:
            names = ", ".join(sorted(self.letters))
            raise ExecutionError(f"expected an event of one of the pattern's channels ({names}), found {channel!r}")
        return found

    # ── order ──

    def expect(self, sources: Iterable[str]) -> None:
        """Wait for these sources too, of which nothing has come yet."""
        for source in sources:
            self._promises.setdefault(source, NEVER)
        self._least = None

    def promise(self, source: str, time: int) -> None:
        """None of the source's later events is older than `time`."""
        self._promise(source, time)
        self._release()

    def leave(self, source: str) -> None:
        """The source will have no more events."""
        self._promises.pop(source, None)
        self._least = None
        self._release()

    def finish(self) -> None:
        """No source will have more events."""
        for source in self._promises:
            self._promises[source] = FOR_EVER
        self._least = None
        self._release()
        self._found += self.engine.finish()

    # ── where it is told how far the sources have come ──

    def advance(self, upto: Place) -> None:
        """Nothing comes any more that is before this place: a time, and of sources at that time the last."""
        if upto > self._released:
            self._released = upto
        if self._waiting:
            self._feed_upto(self._released)
        if self._promising:
            self._pass_time(self._released[0])

    @property
    def released(self) -> int:
        """The time up to which rows were taken."""
        return self._released[0]

    @property
    def due(self) -> int | None:
        """No promise of an earlier time decides anything; None where none does at all."""
        return None if not self._promising or self._due == FOR_EVER else self._due

    @property
    def waiting(self) -> Place | None:
        """The place of the first row that waits for its turn."""
        return self._waiting[0][:2] if self._waiting else None

    def promised(self, channel: str, source: str, node: str | None) -> int | None:
        """How far a source has come by the times that its own events say; None while it has said none."""
        return self._promises.get(self._source(channel, source_id(source, node)))

    def take_over(self, other: Runner) -> None:
        """Go on where another was that has ended: with what it has counted, and as far as its sources have come."""
        self.counts, self.doubts, self.blind = other.counts, list(other.doubts), list(other.blind)
        self.sure, self._released, self._promises = other.sure, other._released, dict(other._promises)
        self._least = None

    def held(self) -> tuple[list[Event], list[Event], list[Event]]:
        """The events that partial matches hold, those that wait for their turn and fit an element, and those that wait
        and stand between such."""
        waiting = {it.number for it in self._waiting}
        live = [int(number) for number in self.engine.live_events() if number not in waiting]
        fitting = [it.number for it in self._waiting if it.letter]
        between = [it.number for it in self._waiting if not it.letter]
        return self.events.many(tuple(live)), self.events.many(tuple(fitting)), self.events.many(tuple(between))

    @property
    def open_runs(self) -> int:
        """Partial matches; where these are shared, the events in them."""
        found = getattr(self.engine, "open_runs", None)
        return int(self.engine.nodes if found is None else found)

    @property
    def memory(self) -> int:
        """Bytes of its arrays; of runs in plain Python, and of the events that are held, nothing is known."""
        memory = getattr(self.engine, "memory", None)
        return 0 if memory is None else sum(array.nbytes for array in memory.arrays.values())

    @property
    def latest(self) -> int | None:
        """The latest time that events have said of themselves."""
        return max(self._promises.values()) + self.pattern.lateness if self._promises else None

    def _source(self, channel: str, who: str) -> str:
        """What the promises of a source go by, whose id this is."""
        return f"{channel}/{who}" if self.given else who

    def _is_late(self, it: Letters, who: str, time: int) -> bool:
        """Whether its source had come further already; and so far it has come now."""
        if self.given and it.time is None:
            return False  # who tells us how far sources have come knows
        source = self._source(it.channel.name, who) if self.given else who
        promised = self._promises.get(source, NEVER)
        if time - self._lateness > promised:
            self._promise(source, time - self._lateness)
        return time < promised

    def _is_behind(self, time: int, source: str) -> bool:
        """Whether a row comes after its turn: it is left out, and counted. One of the very moment that was released
        last is not, whatever its source: that may have come only now."""
        if time >= self._released[0]:
            return False
        if (time, source) > self.sure:
            self.counts.contradicted += 1
            self.doubts.append(time)
            del self.doubts[:-DOUBTS]
        else:
            self.counts.late += 1
        return True

    def _promise(self, source: str, time: int) -> None:
        before = self._promises.get(source)
        if before is None or time > before:
            self._promises[source] = time
            if before is None or (self._least is not None and self._least[1] == source):
                self._least = None

    def _reached(self) -> tuple[int, str]:
        """The time and source up to which no source can have earlier events. A source that appears later may have
        promised less: what was let through stays so."""
        if self._least is None:
            if not self._promises:
                return FOR_EVER, LAST
            if len(self._promises) == 1:
                ((name, promise),) = self._promises.items()
                self._least = promise, name
            else:
                self._least = min((promise, name) for name, promise in self._promises.items())
        if self._least > self._released:
            self._released = self._least
        return self._released

    def _direct(self, source: str, times: Any, upto: Place | None) -> bool:
        """Whether rows of a source, as they come, are in order and need not wait."""
        if self._waiting or not len(times):
            return False
        if len(times) > 1 and (np.diff(times) < 0).any():
            return False
        end = int(times[-1]), source
        if self.given:
            return upto is not None and end <= upto
        return all((promise, name) >= end for name, promise in self._promises.items())

    def _release(self) -> None:
        """Feed what no source can have an earlier event than."""
        if self.given:
            return
        if self._waiting:
            self._feed_upto(self._reached())
        if self._promising and self._promises:
            if self._least is None:
                self._reached()
            assert self._least is not None
            self._pass_time(self._least[0])

    def _feed_upto(self, place: Place) -> None:
        """What waits, up to a place."""
        waiting, ready = self._waiting, list[Waiting]()
        while waiting and (place[0] == FOR_EVER or waiting[0][:2] <= place):
            ready.append(heapq.heappop(waiting))
        if len(ready) == 1:
            it = ready[0]
            self._expect_due(it.time)
            self.engine.one(it.letter, it.number, it.time, it.words, it.values, self._found)
            self._sweep_events()
        elif ready:
            rows = np.array([[-1, it.letter, it.number, it.time] for it in ready], np.int64)
            values = np.array([it.values for it in ready], np.int64) if self._remembers else None
            self._feed(rows, np.array([it.words for it in ready], np.int64).reshape(-1), values)

    def _pass_time(self, time: int) -> None:
        """Nothing earlier comes any more: what was absent so far, and what was held back, is decided."""
        if time >= self._due and self._promising:
            self._found += self.engine.promise(time)
            self._due = FOR_EVER if (due := self.engine.due()) is None else due

    def _expect_due(self, time: int) -> None:
        """A row of this time may begin what has to be decided when its window ends."""
        kind, length = self._window
        if kind == at_.BY_TIME and time + length < self._due:
            self._due = time + length + 1

    def _feed(self, rows: Any, words: Any, values: Any) -> None:
        if len(rows):
            self._expect_due(int(rows[0, 3]))
        self._found += self.engine.feed(rows, words, values)
        self._sweep_events()

    def _sweep_events(self) -> None:
        """Let go of events that no run holds, when they have become many."""
        if self.events.size > self._sweep:
            self._let_go()
            self._sweep = max(HELD, 2 * self.events.size)

    def _let_go(self) -> Any:
        """Of events that nothing holds; what is left."""
        self.engine.compact()
        held = [number for found in self._found for number in found.events]
        held += [it.number for it in self._waiting]
        live = np.sort(np.concatenate([self.engine.live_events(), np.array(held, np.int64)]))
        live = live[np.diff(live, prepend=-1) > 0]  # each once: np.unique takes ten times as long
        self.events.keep(live)
        if self.engine.crowded:
            keys = [self.engine.keys.values_of(it.words) for it in self._waiting]
            values = [np.array(it.values, np.int64) for it in self._waiting]
            self.engine.trim(values if self._remembers else ())
            for at, (it, key, kept) in enumerate(zip(self._waiting, keys, values, strict=True)):
                self._waiting[at] = it._replace(words=self.engine.keys.of_values(key), values=kept.tolist())
        return live

    def _fields(self, number: int) -> tuple[dict[str, Any], EventContext]:
        """What conditions between elements read of an event."""
        found = self._read.get(number)
        if found is None:
            if len(self._read) >= READ:
                self._read.clear()
            event = self.events[number]
            meta = EventContext(event.source, event.node, event.seq, event.published)
            found = self._read[number] = self.raw(event), meta
        return found

    # ── what was found ──

    @property
    def found(self) -> int:
        """How many matches were found since they were last asked for."""
        return len(self._found)

    def matches(self) -> list[Match]:
        """Those found since this was last asked."""
        found, self._found = self._found, []
        self.counts.matches += len(found)
        self.counts.given_up = self.engine.given_up
        self.counts.unskipped = getattr(self.engine, "unskipped", 0)
        held = self.events.frozen()
        return [Match(self.pattern, each, held) for each in found]

    def raw(self, event: Event) -> dict[str, Any]:
        """The fields of an event of a match, in raw form."""
        return raw_of(self.channels[event.channel], event)

    # ── what is kept of it ──

    def snapshot(self, positions: Mapping[str, int]) -> bytes:
        """Its state, with the last event of each source that is in it. Matches that were not asked for are in it."""
        live = self._let_go()
        waiting = []
        for *place, letter, number, words, values in sorted(self._waiting):
            waiting.append([place, letter, number, list(words), list(values)])
        found = [[list(f.events), list(f.labels), f.time, f.deadline, list(f.key)] for f in self._found]
        state = [
            self.engine.name,
            self.engine.dump(),
            self.events.dump(live.tolist(), self.channels),
            self._promises,
            list(self._released),
            waiting,
            found,
            [getattr(self.counts, name) for name in self.counts.__dataclass_fields__],
            self.blind,
        ]
        return runnable.snapshot(KIND, self.pattern.fingerprint, positions, _ENCODER.encode(state))

    def restore(self, snapshot: bytes) -> dict[str, int]:
        """Go on from a snapshot of an equal pattern; the positions after which events are to come."""
        found = runnable.read_snapshot(snapshot, KIND, self.pattern.fingerprint)
        try:
            name, engine, events, promises, released, waiting, matches, counts, blind = _DECODER.decode(found.state)
            if name != self.engine.name:
                raise ExecutionError(f"snapshot: expected the state of a {self.engine.name} engine, found {name!r}")
            self.engine.load(engine)
            self.events.load(events)
            self._promises, self._released = dict(promises), (released[0], released[1])
            self._least, self._waiting = None, []
            self._due = -FOR_EVER  # the next promise finds out
            for (time, source, seq, channel), letter, number, words, values in waiting:
                self._waiting.append(Waiting(time, source, seq, channel, letter, number, words, values))
            self._found = [Found(tuple(e), tuple(by), t, d, tuple(k)) for e, by, t, d, k in matches]
            self.counts = Counts(*counts)
            self.blind = [(int(start), int(upto)) for start, upto in blind]
            self._read.clear()  # other events have these numbers now
            self._check()
        except (ValueError, TypeError, IndexError, KeyError, OverflowError, msgspec.MsgspecError) as error:
            raise ExecutionError(f"snapshot: expected the state of a pattern, found something else: {error}") from None
        return found.positions

    def _check(self) -> None:
        """All events that runs, rows that wait and matches hold are there."""
        held = {number for found in self._found for number in found.events}
        held.update(it.number for it in self._waiting)
        held.update(self.engine.live_events().tolist())
        elements = range(len(self.automaton.elements))
        good = held <= self.events.numbers() and all(label in elements for f in self._found for label in f.labels)
        width, columns = self.engine.keys.words, 2 * len(self.engine.registers.columns) if self._remembers else 0
        for _, _, _, channel, letter, _, words, values in self._waiting:
            numbers = all(
                isinstance(word, int) and -FOR_EVER - 1 <= word <= FOR_EVER for word in (letter, *words, *values)
            )
            good = good and numbers and len(words) == width and len(values) == columns and channel in self.channels
        if not good:
            raise ExecutionError("snapshot: expected events for all that is held, found others")


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgpack_decoder(list[Any])


def signed_letter(letter: int) -> int:
    """A set of elements as a kernel has it: one that a matcher found may have its 64th bit set."""
    return signed(letter) if letter >= 0 else letter


def _origin(meta: EventContext) -> tuple[str, int]:
    if meta.source is None or meta.seq is None:
        raise ExecutionError(f"expected an event's source and number, found {meta.source!r} and {meta.seq!r}")
    return meta.source, meta.seq


def _each(value: Any, count: int) -> list[Any]:
    """What is known of all rows, or of each."""
    if value is None or isinstance(value, str):
        return [value] * count
    return value.to_pylist() if hasattr(value, "to_pylist") else list(value)


def _column(values: Any, count: int) -> Any:
    if isinstance(values, int):
        return np.full(count, values, np.int64)
    if hasattr(values, "to_numpy"):
        values = values.cast("int64").to_numpy(zero_copy_only=False)
    found = np.asarray(values)
    return found.astype(np.int64)


def _taken(column: Any, at: Any, count: int) -> Any:
    """Of some rows of an Arrow array; nothing where none has a value."""
    if column is None or column.null_count == count:
        return None
    return column if len(at) == count else column.take(_indices(at))


def _listed(column: Any, count: int) -> list[Any]:
    return [None] * count if column is None else column.tolist()


def _indices(at: Any) -> Any:
    from headwater.late import pa

    return pa.array(at)


__all__ = ["FOR_EVER", "Counts", "EngineName", "Match", "Place", "Runner"]
