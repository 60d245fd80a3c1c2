"""A named pattern at a node with state: what it has found, and how far it is, survives the process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from headwater.channel.patterns.keeping import Keeping, PatternProgress
from headwater.channel.patterns.outlets import PublishedOnce
from headwater.channel.patterns.resumption import Resumption, resumption
from headwater.channel.patterns.stage import Errand
from headwater.channel.patterns.subscription import NamedPattern
from headwater.channel.patterns.watermark import NOWHERE
from headwater.channel.queues.mailbox import dispatch_all
from headwater.channel.queues.position_keys import LOGGED
from headwater.channel.routing.letter import Letter
from headwater.errors import ClosedError, HeadwaterError, StoreError

if TYPE_CHECKING:
    from headwater.channel.patterns.operator import PatternOperator
    from headwater.channel.patterns.report import PatternReport
    from headwater.channel.routing.attachment import Attachment
    from headwater.channel.routing.letter import Chunk
    from headwater.channel.routing.route import Ready
    from headwater.patterns.pattern import Pattern

log = logging.getLogger("headwater")
RETRY_SECONDS = 1.0  # after which it is tried again to publish, or to write, what could not be
ABSENT_SECONDS = 0.25  # between two looks whether sources are back that it was with before a restart
CLOSE_SECONDS = 10.0  # for which the end waits for the last state to be written


class KeptPattern(NamedPattern):
    """It goes on from what was kept (`Keeping`), waits for the sources that it was with, publishes no match twice, and
    keeps its state every so many events and seconds (`Config.patterns`), and at the end.

    Its run says which values are bound: they are asked for from the start, and what was missed of them is read back. So
    positions in sources, also of those that it has heard nothing of, are all that is kept beside the run."""

    _resumes = True

    def __init__(self, *args: Any) -> None:
        *rest, self._keeping, operator, resumed = args
        super().__init__(*rest, outlet=self._once)
        self._goes_on = self.node.state is not None
        keeping: Keeping = self._keeping
        # What comes while it waits for a state that is handed over.
        self._awaiting: Any = [] if resumed is None else None
        self._passed: dict[str, int] = {}  # of sources, events up to which all that matters was offered
        self._written: dict[str, int] = {}  # positions in sources of other nodes, as they were written last
        self._go_on(operator)
        self._outlet.had = keeping.had(self.source)
        self._events_kept = operator.runner.counts.events  # when the state was written
        self._since_kept = 0  # events that came since
        self._unkept = ""  # why it could not be, when that was last tried
        self._timer: Any = None
        self._due = inf  # when it goes off
        self._reached: dict[str, int] | None = None  # where own sources were when it was asked to keep its state
        self._settings = self.node.config.patterns
        self._waits_until = self.node.clock.now() + self._settings.grace  # for sources that it was with
        self._stage.watermark.patient = self._settings.grace
        self._hold_back("start")
        for key in self._absent:
            self._hold_back(key)
        if resumed is not None:
            self._narrow_from(resumed)
        if keeping.resumed and self.pattern.model.patience is not None:
            self._stage.patient_until = self.node.clock.now() + self.pattern.model.patience / 1e6

    def _narrow_from(self, resumed: Resumption) -> None:
        """From here on, events may be asked for by what is bound."""
        if self._stage.arrivals is not None:
            self._stage.arrivals.resume(resumed, self._settings.grace)

    def _hold_back(self, key: str) -> None:
        self._stage.watermark.hold(key, NOWHERE[0])

    def _go_on(self, operator: PatternOperator) -> None:
        """From a run as it was, with the sources that it was with."""
        self._stage.operator = operator
        others = self._keeping.of_others(operator.positions)
        self._progress = PatternProgress(self, others)
        self._heard = set(operator.positions)
        self._came: dict[str, int] = dict(self._keeping.floor)  # of each source, the last event
        self._absent = set() if self._awaiting is not None else set(others)
        if self._stage.watermark.blind is not None:
            self._stage.watermark.blind.resumed = frozenset(others)

    def go_on(self, state: bytes | None) -> None:
        """The state that it has waited for is here, or there is none: it goes on, with all that came meanwhile."""
        done = threading.Event()

        def run() -> None:
            before = self._stage.operator
            operator = self._keeping.operator(self.pattern, before.order, state)
            operator.positions = {**before.positions, **operator.positions}
            if not self._keeping.resumed:
                operator.runner.blind = before.runner.blind
            self._go_on(operator)
            self._outlet.had = self._keeping.had(self.source)
            self._narrow_from(resumption(operator, None, {}))
            done.set()

        self._stage.do(Errand(run))
        done.wait(CLOSE_SECONDS)
        ready: Ready = []
        with self._beginning:  # who has something new for it waits for that
            for attachment, letter in self._awaiting or ():
                (self._take if isinstance(letter, Letter) else self._take_chunk)(attachment, letter, ready)
            self._awaiting = None
        dispatch_all(ready)
        self.began()

    def began(self) -> None:
        """It is attached to all its channels: what came of them is in its mailbox."""
        self._stage.watermark.let_go("start")
        if self._stage.arrivals is not None:
            self._stage.arrivals.start()
        if self._absent:
            self._look_for_absent()
        self._stage.nudge()
        self.keep()

    # ── in ──

    def _began(self, attachment: Attachment) -> None:
        """Its sources stand still: what they have logged since their logs were read comes before anything else."""
        super()._began(attachment)
        attachment.slow_down()
        if attachment.epoch > 1:
            return
        channel: Any = attachment.channel
        for source in list(channel.sources.values()):
            if source.local and source.channel is channel:
                for letter in self._keeping.rest(self._stage.operator, channel, source):
                    self._accept(attachment, letter, self._starters)
                self._heard.add(source.id)
                self._keeping.own.add(source.id)

    def _hears(self, attachment: Attachment) -> None:
        """After a restart, what is in a log is read again; else it is known up to where its state was written."""
        blind, keeping = self._stage.watermark.blind, self._keeping
        if blind is None or not keeping.resumed or attachment.epoch > 1:
            super()._hears(attachment)
        elif all(channel is not attachment.channel for channel, _ in keeping.channels()):
            blind.begun(attachment, self._stage.operator.runner.released)

    def _waits(self, attachment: Attachment, letter: Any) -> bool:
        """Whether it is too early for anything: it waits for a state that is handed over."""
        if self._awaiting is None:
            return False
        with self._beginning:
            if self._awaiting is None:
                return False
            self._awaiting.append((attachment, letter))
            return True

    def _accept(self, attachment: Attachment, letter: Letter, ready: Ready) -> None:
        if self._awaiting is None or not self._waits(attachment, letter):
            self._take(attachment, letter, ready)

    def _take(self, attachment: Attachment, letter: Letter, ready: Ready) -> None:
        if self._is_new(attachment, letter, letter.seq, letter.seq):
            super()._accept(attachment, letter, ready)

    def _accept_chunk(self, attachment: Attachment, chunk: Chunk, ready: Ready) -> None:
        if self._awaiting is None or not self._waits(attachment, chunk):
            self._take_chunk(attachment, chunk, ready)

    def _take_chunk(self, attachment: Attachment, chunk: Chunk, ready: Ready) -> None:
        first, last = int(chunk.seqs[0]), int(chunk.seqs[-1])
        floor = self._last(_key(chunk.source))
        if not self._is_new(attachment, chunk, first, last):
            return
        if first <= floor:
            chunk = chunk.part(int(chunk.seqs.searchsorted(floor, "right")), len(chunk))
        super()._accept_chunk(attachment, chunk, ready)

    def _is_new(self, attachment: Attachment, letter: Any, first: int, last: int) -> bool:
        """Whether something of it has not come before, or is not in the state that it went on from: after a node was
        started again, sources send what it may have had. Under the lock of its source."""
        key = _key(letter.source)
        if last <= self._last(key):
            return False
        self._came[key] = last
        if key not in self._heard:
            self._heard.add(key)
            if letter.source.local:
                self._keeping.own.add(key)
            else:
                self._keeping.came(key, first - 1)
        if self._progress is not None:
            self._progress.arrive(attachment, letter)
        return True

    def _last(self, key: str) -> int:
        """The event of a source up to which nothing is taken any more."""
        return max(self._came.get(key, 0), self._passed.get(key, 0))

    def _reach(self, positions: Mapping[str, int]) -> None:
        unknown = positions.keys() - self._stage.operator.positions.keys()
        super()._reach(positions)
        self._passed.update({key: seq for key, seq in positions.items() if seq > self._passed.get(key, 0)})
        if unknown:  # sources of which nothing has come: what they publish while the process is away is missed else
            self.keep()

    def _keep_narrow(self, nodes: frozenset[str]) -> None:
        self._keeping.keep_narrow(nodes)

    # ── out ──

    def _once(self, *_: Any) -> PublishedOnce:
        self._outlet = PublishedOnce(self.source, self._handler_failed, self._unpublishable)
        return self._outlet

    def _unpublishable(self, error: HeadwaterError) -> None:
        """What cannot be logged now is tried again, and nothing is kept meanwhile."""
        self._trouble = f"{type(error).__name__}: {error}"
        log.error("pattern %r: a match cannot be published, it is tried again: %s", self.name, error)
        self._later(RETRY_SECONDS)

    def _come_to(self) -> tuple[int, int] | None:
        """As of any; nothing is promised while matches wait to be published."""
        found = super()._come_to()
        return None if self._outlet.waiting else found

    # ── what is kept ──

    def _settled(self) -> None:
        self._outlet.publish()
        self._since_kept = self._stage.operator.runner.counts.events - self._events_kept
        if self._reached is not None:
            reached, self._reached = self._reached, None
            self._write(reached)
        elif self._since_kept >= self._settings.keep_events:
            self._write({})
        elif self._since_kept and self._timer is None:
            self._later(self._settings.keep_seconds)

    def keep(self) -> None:
        """Have its state written, as soon as who runs the stage comes to it."""
        self._stage.do(Errand(self._note_reached))

    def _note_reached(self) -> None:
        """What own sources have published by now is offered, or nothing to the pattern, when the mailbox is empty."""
        self._reached = {
            source.id: source.seq
            for channel, _ in self._keeping.channels()
            for source in list(channel.sources.values())
            if source.local and source.log is not None
        }

    def _later(self, seconds: float) -> None:
        """Look after it in so many seconds, at the latest."""
        at = self.node.clock.now() + seconds
        if at >= self._due or self.cancelled:
            return
        if self._timer is not None:
            self._timer.cancel()
        with suppress(ClosedError):
            self._timer, self._due = self.node._timers.call_at(at, self._tick), at

    def _tick(self) -> None:
        self._timer, self._due = None, inf
        if not self.cancelled:
            self.keep()

    def _write(self, reached: dict[str, int]) -> None:
        if self._outlet.waiting:  # they would not be found again
            return
        operator = self._stage.operator
        try:
            self._forget_gone(operator.positions)
            points = self._keeping.keep(operator, reached, self.source.seq, self._outlet.had)
            others = self._keeping.of_others(points)
            if others and self.node.state is not None:
                self.node.state.commit_all(self.name, {key: seq for key, seq in others.items() if seq})
        except StoreError as error:
            self._unkept = f"it cannot be written, and is tried again: {error}"
            log.error("pattern %r: its state cannot be kept, it is tried again: %s", self.name, error)
            self._later(RETRY_SECONDS)
            return
        self._unkept, self._written = "", others
        operator.positions.update(points)
        self._events_kept, self._since_kept = operator.runner.counts.events, 0
        if isinstance(self._progress, PatternProgress):
            self._progress.kept(others)

    # ── sources that it was with ──

    def _forget_gone(self, positions: dict[str, int]) -> None:
        """Nothing is kept of sources that are no more, and never will be: without a log, a later one of that name
        counts anew. The state that was written last has all of theirs, so that they were told that nothing of it need
        come again."""
        there = self._there()
        for key, seq in self._written.items():
            if key.startswith(LOGGED) or key in there or key in self._absent or positions.get(key) != seq:
                continue
            if self.node._is_gone(key):
                if self.node.state is not None:
                    self.node.state.forget(self.name, key)
                for known in (positions, self._came, self._passed):
                    known.pop(key, None)
                self._heard.discard(key)
                if isinstance(self._progress, PatternProgress):
                    self._progress.forget(key)

    def _there(self) -> set[str | None]:
        """The position keys of sources of other nodes that are here."""
        return {
            source.position_key
            for asked in self._asked
            for source in list(getattr(asked.target, "sources", {}).values())
            if not source.local
        }

    def _look_for_absent(self) -> None:
        """Until it is known of each source of another node that it is there again, or no more, nothing is decided that
        it could contradict."""
        there = self._there()
        late = self.node.clock.now() > self._waits_until
        for key in list(self._absent):
            if key in there or late or self.node._is_gone(key):
                self._absent.discard(key)
                self._stage.watermark.let_go(key)
                self._stage.nudge()
        if self._absent and not self.cancelled:
            with suppress(ClosedError):
                self.node._timers.call_after(ABSENT_SECONDS, self._look_for_absent)

    # ── changing and ending it ──

    def _changed(self, pattern: Pattern) -> None:
        self._keeping.changed(pattern)
        self.keep()

    def finish(self, timeout: float = CLOSE_SECONDS, *, stop: bool = False) -> None:
        """Write its state for the last time. With `stop` nothing is decided after that: who goes on from there does."""
        self._note_reached()
        reached = self._reached or {}
        self._reached = None

        def write() -> None:
            self._write({} if self._stage.mailbox.items else reached)
            self._stage.stopped = stop

        self._in_turn(write, timeout)

    def cancel(self, *, drain: bool = False, forget: bool = False) -> None:
        """End it, and its source. What was kept of it stays, for when it is made again; unless it is to `forget`."""
        if not self.cancelled:
            if not forget and not self.node.closed:
                self.finish(stop=True)
            super().cancel(drain=drain)
            if self._timer is not None:
                self._timer.cancel()
        if forget:
            self._keeping.forget()

    def close(self, *, forget: bool = False) -> None:
        """End it, and its source; with `forget`, so that one of this name begins anew."""
        self.cancel(forget=forget)

    def report(self) -> PatternReport:
        """As of any pattern, with what is kept of it."""
        return replace(super().report(), kept=self.keeping())

    def keeping(self) -> Mapping[str, Any]:
        """What is kept, for reports."""
        keeping = self._keeping
        return {
            "resumed": keeping.resumed,
            "anew": keeping.anew,
            "written": keeping.written,
            "bytes": keeping.bytes,
            "events_since": self._since_kept,
            "lost": dict(keeping.lost),
            "waits_for": sorted(self._absent),
            "trouble": self._unkept,
            "unpublished": len(self._outlet.waiting),
        }


def _key(source: Any) -> str:
    return str(source.position_key or source.id)


__all__ = ["KeptPattern"]
