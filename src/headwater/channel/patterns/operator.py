"""A pattern's runner at work: events in, results out. It knows no channels, threads or clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from headwater.channel.routing.letter import Chunk, Letter
from headwater.ir.interp import EventContext
from headwater.late import pa
from headwater.patterns.crossing.marks import Mark
from headwater.patterns.pattern import Pattern
from headwater.patterns.run.results import Results
from headwater.patterns.run.runner import FOR_EVER, Match, Place, Runner

PatternOrder = Literal["time", "arrival"]
ORDERS: tuple[PatternOrder, ...] = ("time", "arrival")


class PatternOperator:
    """Not locked: one thread at a time. Events are offered as they come; `advance` says how far the sources have come,
    and gives what was found by then, as events of the pattern's output."""

    def __init__(self, pattern: Pattern, order: PatternOrder = "time") -> None:
        self.order = order
        self.dropped = 0  # runs that were open when the pattern was changed
        self.uncertain = 0  # matches that were not waited for
        self.positions: dict[str, int] = {}  # of each source, the last event that was offered
        self._arrived = -FOR_EVER
        self.begin(pattern)

    def begin(self, pattern: Pattern) -> None:
        """Anew, with nothing open."""
        self.pattern = pattern
        self.runner = Runner(pattern.model, given=True)
        self.results = Results(pattern.model)
        self._output = pattern.output

    def exchange(self, pattern: Pattern) -> None:
        """Another pattern: what was open is dropped and counted; what is counted otherwise goes on."""
        before = self.runner
        self.dropped += before.open_runs
        self.begin(pattern)
        self.runner.take_over(before)

    # ── events ──

    def offer(self, channel: str, letter: Letter, now: int) -> None:
        """One event, or a Mark in its place; `now` is the present in microseconds, for those that go by arrival."""
        source = letter.source
        record = letter.record
        meta = EventContext(source.name, source.node, letter.seq, letter.stamp // 1000)
        time = self._arrival(now) if self.order == "arrival" else None
        if letter.event.__class__ is Mark:
            self.runner.mark(channel, letter.event, meta, time=time)
        else:
            self.runner.offer(channel, record if record.__class__ is bytes else bytes(record), meta, time=time)
        self.positions[source.position_key or source.id] = letter.seq

    def offer_batch(self, channel: str, chunk: Chunk, upto: Place) -> None:
        """Many of one source, where nothing else comes any more that is before `upto`."""
        source = chunk.source
        meta = {"source": source.name, "node": source.node, "seq": pa.array(chunk.seqs), "time": chunk.stamp // 1000}
        self.runner.batch(channel, chunk.taken(), meta, upto)
        self.positions[source.position_key or source.id] = int(chunk.seqs[-1])

    def _arrival(self, now: int) -> int:
        """A time of its own for each event, later than those before."""
        self._arrived = max(self._arrived + 1, now)
        return self._arrived

    # ── results ──

    def advance(self, sure: Place, forced: int | None = None) -> Sequence[Any]:
        """Nothing comes any more before `sure`, and nothing before the time `forced` is waited for: the results of what
        was found. Those of matches that would have had to wait longer are marked as uncertain."""
        runner = self.runner
        if self.order == "arrival":
            sure, forced = (max(self._arrived + 1, sure[0]), ""), None
        runner.advance(sure)
        runner.order.sure = max(runner.order.sure, sure)
        made = [self._result(match, self._is_doubtful(match)) for match in runner.matches()]
        if forced is not None and (forced, "") > sure:
            runner.advance((forced, ""))
            more = runner.matches()
            self.uncertain += len(more)
            made += [self._result(match, True) for match in more]
        return made

    def _is_doubtful(self, match: Match) -> bool:
        """Whether something came too late to be waited for that may have belonged to it, or may have been published
        without having been heard of."""
        runner = self.runner
        if not runner.order.doubts and not runner.blind and not runner.unheard:
            return False
        first, last = match.events[0][1].time, match.time
        doubtful = runner.unheard or any(first <= time <= last for time in runner.order.doubts)
        doubtful = doubtful or any(start <= last and first < upto for start, upto in runner.blind)
        self.uncertain += doubtful
        return doubtful

    def _result(self, match: Match, uncertain: bool) -> Any:
        return self._output.from_raw(self.results.raw(match, self.runner.raw, uncertain=uncertain))

    # ── time ──

    @property
    def due(self) -> int | None:
        """The time that sources have to promise for something to be decided though nothing more comes."""
        return self.runner.due

    @property
    def waiting(self) -> Place | None:
        """The first row that waits for sources to come so far."""
        return self.runner.waiting

    # ── what is kept of it ──

    def snapshot(self) -> bytes:
        """Its state, with the last event of each source that is in it."""
        return self.runner.snapshot(self.positions)

    def restore(self, snapshot: bytes) -> dict[str, int]:
        """Go on from there; the positions after which events are to come."""
        self.positions = dict(self.runner.restore(snapshot))
        return dict(self.positions)


__all__ = ["ORDERS", "PatternOperator", "PatternOrder"]
