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

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from headwater import runnable
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
from headwater.patterns.run import runner_state
from headwater.patterns.run.batches import Batches
from headwater.patterns.run.events import Event, Events, fields_of, origin_of, raw_of, source_id
from headwater.patterns.run.letters import Interpreted, Judged, Letters
from headwater.patterns.run.matches import Counts, Match
from headwater.patterns.run.order import FOR_EVER, NEVER, Order, Place, Waiting
from headwater.patterns.run.record_reading import AMONG, HEAD, KEYED, TIMED, Reading, TooMuch
from headwater.types.model import TIMESTAMP_MAX, TIMESTAMP_MIN

KIND = "pattern"
HELD = 1 << 18  # events; from here on, and whenever they have doubled, those that no run holds are let go
READ = 1 << 12  # events whose fields are at hand


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
        self.automaton: Automaton = automaton(pattern)
        self.engine: Any = engine_for(pattern, self.automaton, self._fields, mode, interpreted, engine)
        judges = Interpreted if interpreted else Letters
        self.channels = {channel.name: channel for channel in pattern.channels}
        wanted = self.automaton.reading
        self.letters = {name: judges(pattern, channel, wanted) for name, channel in self.channels.items()}
        self.events = Events()
        self.counts = Counts()
        self.all_rows = self.automaton.strict or (pattern.window is not None and pattern.window.rows is not None)
        self.order = Order(pattern.lateness, given=given)
        # Stretches of time of which not all events are known, and whether that is so of all times for now.
        self.blind: list[tuple[int, int]] = []
        self.unheard = False
        self._due = FOR_EVER  # no promise of an earlier time decides anything
        self._window = window_of(pattern)
        self._found: list[Found] = []
        self._sweep = HELD
        held = getattr(self.engine, "registers", None)
        self.remembers = held is not None and bool(held.columns)
        self._read: dict[int, tuple[dict[str, Any], EventContext]] = {}
        self._holds = self.engine.name != "apart"  # whether the engine knows which events it holds
        self._promising = bool(pattern.absent) or not self.engine.every
        self.readings = {} if interpreted else self._reading()

    def _reading(self) -> dict[str, Reading]:
        """How events of each channel are read at once, where they can be."""
        found = {}
        keys, held = self.engine.keys, getattr(self.engine, "registers", None)
        for name, channel in self.channels.items():
            columns = held.reads(channel.type.record) if held is not None and self.remembers else ()
            number = held.number if held is not None else keys.of_text
            with suppress(TooMuch):
                found[name] = Reading(self.letters[name].here, channel, columns, keys.of_text, number)
        return found

    def prepare(self) -> None:
        """Wait until machine code reads events. They may come before: they are read more slowly until then."""
        for reading in self.readings.values():
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
        reading = self.readings.get(channel)
        if reading is not None and type(record) is bytes and reading.ready():
            words = reading(record, meta)
        it = self.letters_of(channel)
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
        late = self.order.is_late(channel, it.time is not None, who, time)
        if row:
            if not keyed:
                counts.keyless += 1
            elif late:
                counts.late += 1
            elif self.order.given and self.order.is_behind(time, who, counts):
                pass
            elif fits or self.all_rows:
                counts.rows += 1
                if judged is not None:
                    key, values = self._slow_words(it, judged, record, meta)
                else:
                    assert reading is not None and words is not None
                    all_of = reading.finished(words)
                    key, values = all_of[HEAD : reading.key_end], all_of[reading.key_end :]
                self.arrive(channel, record, meta, who, time, signed_letter(fits), key, values)
                return
        if self.order.waiting or self._promising:
            self.release()

    def mark(self, channel: str, mark: Mark, meta: EventContext, *, time: int | None = None) -> None:
        """An event that fits no element, of which its time and key are all that is known; `time` as with `offer`."""
        source, _ = origin_of(meta)
        it, counts = self.letters_of(channel), self.counts
        counts.events += 1
        counts.marks += 1
        if time is None:
            time = meta.time if it.time is None else mark.time
        if time is None or not TIMESTAMP_MIN <= time <= TIMESTAMP_MAX:
            counts.timeless += 1
            return
        who = source_id(source, meta.node)
        late = self.order.is_late(channel, it.time is not None, who, time)
        if mark.row:
            if mark.key is None:
                counts.keyless += 1
            elif late:
                counts.late += 1
            elif self.order.given and self.order.is_behind(time, who, counts):
                pass
            elif self.all_rows:
                counts.rows += 1
                values = (0,) * (2 * len(self.engine.registers.columns)) if self.remembers else ()
                self.arrive(channel, b"", meta, who, time, 0, self.engine.keys.of_record(mark.key), values)
                return
        if self.order.waiting or self._promising:
            self.release()

    def _slow_words(
        self, it: Letters, judged: Judged, record: Any, meta: EventContext
    ) -> tuple[Sequence[int], Sequence[int]]:
        """The words of an event's key and what runs remember of it, value by value."""
        words = self.engine.keys.of_record(judged.key or {})
        if not self.remembers:
            return words, ()
        raw = fields_of(it.channel, record)
        return words, self.engine.registers.row(it.channel.type.record, raw, meta)

    def arrive(
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
        order = self.order
        if not order.given and not order.waiting and (time, who) <= order.reached():
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
            order.wait(Waiting(time, who, seq, channel, letter, number, words, values))
        if self.order.waiting or self._promising:
            self.release()

    def batch(self, channel: str, batch: Any, meta: Mapping[str, Any], upto: Place | None = None) -> None:
        """The rows of a RecordBatch. `meta` has source, seq and time, and perhaps node, each for all rows or by row.
        With `upto`, nothing else comes any more that is before this place: rows up to there need not wait."""
        Batches(self).take(channel, batch, meta, upto)

    def ordered(self, parts: Iterable[tuple[str, Any, Mapping[str, Any], Any]]) -> None:
        """Rows of all sources and channels that are in order as they come, so that none has to wait: of a history that
        somebody else has sorted. A part is a channel, a batch of its rows, their meta by row (source, seq, time, node),
        and the places of the rows among those of all parts. Nothing comes later that belongs before them; `finish`
        comes after the last."""
        Batches(self).ordered(parts)

    @property
    def timed(self) -> bool:
        """Whether time alone, without a further event, may show a match."""
        return self._promising

    def letters_of(self, channel: str) -> Letters:
        found = self.letters.get(channel)
        if found is None:
            names = ", ".join(sorted(self.letters))
            raise ExecutionError(f"expected an event of one of the pattern's channels ({names}), found {channel!r}")
        return found

    # ── order ──

    def expect(self, sources: Iterable[str]) -> None:
        """Wait for these sources too, of which nothing has come yet."""
        self.order.expect(sources)

    def promise(self, source: str, time: int) -> None:
        """None of the source's later events is older than `time`."""
        self.order.promise(source, time)
        self.release()

    def leave(self, source: str) -> None:
        """The source will have no more events."""
        self.order.leave(source)
        self.release()

    def finish(self) -> None:
        """No source will have more events."""
        self.order.finish()
        self.release()
        self._found += self.engine.finish()

    # ── where it is told how far the sources have come ──

    def advance(self, upto: Place) -> None:
        """Nothing comes any more that is before this place: a time, and of sources at that time the last."""
        order = self.order
        if upto > order.released:
            order.released = upto
        if order.waiting:
            self._feed_upto(order.released)
        if self._promising:
            self._pass_time(order.released[0])

    @property
    def released(self) -> int:
        """The time up to which rows were taken."""
        return self.order.released[0]

    @property
    def due(self) -> int | None:
        """No promise of an earlier time decides anything; None where none does at all."""
        return None if not self._promising or self._due == FOR_EVER else self._due

    @property
    def waiting(self) -> Place | None:
        """The place of the first row that waits for its turn."""
        return self.order.waiting[0][:2] if self.order.waiting else None

    def promised(self, channel: str, source: str, node: str | None) -> int | None:
        """How far a source has come by the times that its own events say; None while it has said none."""
        return self.order.promises.get(self.order.source(channel, source_id(source, node)))

    def take_over(self, other: Runner) -> None:
        """Go on where another was that has ended: with what it has counted, and as far as its sources have come."""
        self.counts, self.blind = other.counts, list(other.blind)
        self.order.take_over(other.order)

    def held(self) -> tuple[list[Event], list[Event], list[Event]]:
        """The events that partial matches hold, those that wait for their turn and fit an element, and those that wait
        and stand between such."""
        waiting = {it.number for it in self.order.waiting}
        live = [int(number) for number in self.engine.live_events() if number not in waiting]
        fitting = [it.number for it in self.order.waiting if it.letter]
        between = [it.number for it in self.order.waiting if not it.letter]
        return self.events.many(tuple(live)), self.events.many(tuple(fitting)), self.events.many(tuple(between))

    @property
    def open_runs(self) -> int:
        """Partial matches; where these are shared, at most so many events are in them: what is let go is cleared when
        room is needed."""
        return int(self.engine.held_nodes if self.shares else self.engine.open_runs)

    @property
    def shares(self) -> bool:
        """Whether partial matches are shared, so that nobody knows how many there are."""
        return not hasattr(self.engine, "open_runs")

    @property
    def memory(self) -> int:
        """Bytes of its arrays; of runs in plain Python, and of the events that are held, nothing is known."""
        memory = getattr(self.engine, "memory", None)
        return 0 if memory is None else sum(array.nbytes for array in memory.arrays.values())

    @property
    def latest(self) -> int | None:
        """The latest time that events have said of themselves."""
        promises = self.order.promises
        return max(promises.values()) + self.pattern.lateness if promises else None

    def release(self) -> None:
        """Feed what no source can have an earlier event than."""
        order = self.order
        if order.given:
            return
        if order.waiting:
            self._feed_upto(order.reached())
        if self._promising and (least := order.least) is not None:
            order.reached()
            self._pass_time(least[0])

    def _feed_upto(self, place: Place) -> None:
        """What waits, up to a place."""
        ready = self.order.ready(place)
        if len(ready) == 1:
            it = ready[0]
            self._expect_due(it.time)
            self.engine.one(it.letter, it.number, it.time, it.words, it.values, self._found)
            self._sweep_events()
        elif ready:
            rows = np.array([[-1, it.letter, it.number, it.time] for it in ready], np.int64)
            values = np.array([it.values for it in ready], np.int64) if self.remembers else None
            self.feed(rows, np.array([it.words for it in ready], np.int64).reshape(-1), values)

    def _pass_time(self, time: int) -> None:
        """Nothing earlier comes any more: what was absent so far, and what was held back, is decided."""
        if time >= self._due and self._promising:
            self._found += self.engine.promise(time)
            self._due = FOR_EVER if (due := self.engine.due()) is None else due

    def decide(self, time: int) -> None:
        """What promises of this time decide, whatever is due."""
        self._found += self.engine.promise(time)

    def _expect_due(self, time: int) -> None:
        """A row of this time may begin what has to be decided when its window ends."""
        kind, length = self._window
        if kind == at_.BY_TIME and time + length < self._due:
            self._due = time + length + 1

    def feed(self, rows: Any, words: Any, values: Any) -> None:
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
        held += [it.number for it in self.order.waiting]
        live = np.sort(np.concatenate([self.engine.live_events(), np.array(held, np.int64)]))
        live = live[np.diff(live, prepend=-1) > 0]  # each once: np.unique takes ten times as long
        self.events.keep(live)
        if self.engine.crowded:
            keys = [self.engine.keys.values_of(it.words) for it in self.order.waiting]
            values = [np.array(it.values, np.int64) for it in self.order.waiting]
            self.engine.trim(values if self.remembers else ())
            for at, (it, key, kept) in enumerate(zip(self.order.waiting, keys, values, strict=True)):
                self.order.waiting[at] = it._replace(words=self.engine.keys.of_values(key), values=kept.tolist())
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
        live = self._let_go().tolist()
        state = runner_state.dump(self._kept(), live, self.channels)
        return runnable.snapshot(KIND, self.pattern.fingerprint, positions, state)

    def restore(self, snapshot: bytes) -> dict[str, int]:
        """Go on from a snapshot of an equal pattern; the positions after which events are to come."""
        found = runnable.read_snapshot(snapshot, KIND, self.pattern.fingerprint)
        columns = 2 * len(self.engine.registers.columns) if self.remembers else 0
        elements = len(self.automaton.elements)
        kept = runner_state.load(found.state, self._kept(), self.channels, elements, columns)
        self._found, self.counts, self.blind = kept.found, kept.counts, kept.blind
        self._due = NEVER  # the next promise finds out
        self._read.clear()  # other events have these numbers now
        return found.positions

    def _kept(self) -> runner_state.Kept:
        return runner_state.Kept(self.engine, self.events, self.order, self._found, self.counts, self.blind)


def signed_letter(letter: int) -> int:
    """A set of elements as a kernel has it: one that a matcher found may have its 64th bit set."""
    return signed(letter) if letter >= 0 else letter


__all__ = ["FOR_EVER", "Counts", "EngineName", "Match", "Place", "Runner"]
