"""How a named pattern goes on after a restart: from the state that was kept, over the logs of its sources.

Kept is a snapshot of its run with the position in each source, and the number of the last match that is in it. Who
begins with it reads what its own node has logged since; sources of other nodes send what comes after the positions,
from their logs, or as far as they have kept it (`PatternProgress` tells them). Matches that were found again are known
by their identity: those that the log of the result channel has are not published twice.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from headwater.channel.patterns.kept import Kept, KeptPatterns
from headwater.channel.patterns.operator import PatternOperator, PatternOrder
from headwater.channel.queues.keeper import Points
from headwater.channel.queues.position_keys import key_of, prefix_of
from headwater.channel.queues.positions import Progress
from headwater.channel.routing.letter import Letter
from headwater.decoders import msgpack_decoder
from headwater.errors import ExecutionError, StoreError
from headwater.ir.params import plain
from headwater.patterns.run.runner import FOR_EVER

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.contract import NodeContract
    from headwater.channel.options.subscribe import Asked
    from headwater.channel.source import Source
    from headwater.patterns.pattern import Pattern

log = logging.getLogger("headwater")
_pack = msgspec.msgpack.Encoder().encode
_names = msgpack_decoder(list[str]).decode
_NARROW = "pattern-narrow/"  # in the node's state: which nodes a pattern asks for bound values only


class Keeping:
    """Of one named pattern: what was kept of it in its node's state, and what is kept from now on. At a node without
    state nothing is; it may still go on from what another node has handed over.

    `resumed`: it goes on from there; `anew`: why it does not, though something was kept; `lost`: events that are gone
    from a log, by channel and source, with how many."""

    def __init__(self, node: NodeContract, name: str, pattern: Pattern, asked: list[Asked]) -> None:
        self._node, self.name, self._asked = node, name, asked
        self._table = None if node.state is None else KeptPatterns(node.state)
        self._params = _pack(plain(pattern.params))
        self._fingerprint = pattern.fingerprint
        self.since = node._stamp() // 1000
        self.resumed, self.anew = False, ""
        self.lost: dict[str, int] = {}
        self.published = 0  # the last match that was published when the state was kept
        self._again: frozenset[bytes] = frozenset()  # matches up to there that are found again all the same
        self.written: int | None = None  # when it was last written, in microseconds
        self.bytes = 0
        self.own: set[str] = set()  # keys of sources of this node
        self.floor: Points = {}  # what is not after these positions was in the state that it went on from

    # ── the beginning ──

    def operator(self, pattern: Pattern, order: PatternOrder, state: bytes | None = None) -> PatternOperator:
        """The pattern's run: as it was kept, or as another node has handed it over (`state`), or from the present."""
        made = PatternOperator(pattern, order)
        kept = None if self._table is None else self._table.load(self.name)
        if kept is not None:
            self.since = kept.since
        if state is not None:
            kept = Kept(self._fingerprint, self._params, self.since, 0, state)
        if kept is None:
            return made
        if kept.fingerprint != self._fingerprint:
            self._begin_anew("it is another pattern than the one that was kept")
            return made
        try:
            positions = made.restore(kept.snapshot)
        except ExecutionError as error:
            self._begin_anew(str(error))
            return PatternOperator(pattern, order)
        if kept.params != self._params:
            self.anew = "its parameters have other values: what was open was dropped"
            log.warning("pattern %r: %s", self.name, self.anew)
            made = PatternOperator(pattern, order)
        self.resumed, self.published, self._again = True, kept.published, kept.had
        positions = {**kept.later, **positions}
        made.positions = {self._local(key): seq for key, seq in positions.items()}
        self.floor = dict(made.positions)
        return made

    def _begin_anew(self, why: str) -> None:
        self.anew = why
        log.warning("pattern %r begins anew, from the present: %s", self.name, why)

    def had(self, source: Source[Any]) -> set[bytes]:
        """The identities of matches that were published already, and are found again: those that came after the state
        was written, and those that were to be found again then."""
        channel, type = source.channel, source.channel.type
        found = set(self._again)
        if not self.resumed or type is None or source.log is None or source.seq <= self.published:
            return found
        for part in channel.backlog.read(source.name, self.published, source.seq):
            found.update(type.decode_raw(record)["match"]["identity"] for _, _, record in part.events())
        return found

    # ── what was logged here since ──

    def channels(self) -> Iterator[tuple[Channel[Any], Asked]]:
        """Those of the pattern's channels that this node logs."""
        logs = self._node._logs
        for asked in self._asked:
            channel: Any = asked.target
            if logs is not None and channel.parent is None and logs.wants(channel.name):
                yield channel, asked

    def logged(self, channel: Channel[Any]) -> list[str]:
        """The names of the sources of which this node has a log."""
        assert self._node._logs is not None
        reader = self._node._logs.reader(channel.name)
        return [] if reader is None else [span.source for span in reader.sources()]

    def catch_up(self, operator: PatternOperator) -> None:
        """Offer what this node has logged since, or note where its logs end. No source stands still for that: what is
        published meanwhile comes with `rest`."""
        for channel, asked in self.channels():
            for name in self.logged(channel):
                key = f"{channel.name}/{name}"
                self.own.add(key)
                upto = channel.backlog.last(name)
                if self.resumed:
                    self._read(operator, channel, asked, name, upto)
                else:
                    operator.positions[key] = upto

    def _read(self, operator: PatternOperator, channel: Channel[Any], asked: Asked, name: str, upto: int) -> None:
        key = f"{channel.name}/{name}"
        reading = channel.backlog.read(name, operator.positions.get(key, 0), upto, asked.interest(channel))
        self._note(key, reading.gap)
        runner, node = operator.runner, self._node.name
        for part in reading:
            if len(part):
                meta = {"source": name, "node": node, "seq": part.seqs, "time": part.stamps // 1000}
                runner.batch(channel.name, part.rows, meta, (-FOR_EVER, ""))
            operator.positions[key] = part.upto
        operator.positions[key] = max(reading.reached, operator.positions.get(key, 0))

    def _note(self, key: str, gap: tuple[int, int] | None) -> None:
        if gap is not None:
            self.lost[key] = self.lost.get(key, 0) + gap[1] - gap[0] + 1
            log.warning(
                "pattern %r: events %d to %d of %s are no longer in the log: it goes on without them",
                self.name, gap[0], gap[1], key,
            )  # fmt: skip

    def rest(self, operator: PatternOperator, channel: Channel[Any], source: Source[Any]) -> list[Letter]:
        """Of a source of this node, which stands still: what it has published since its log was read."""
        asked = next((asked for each, asked in self.channels() if each is channel), None)
        if asked is None or source.log is None:
            return []
        key, found = source.id, list[Letter]()
        self.own.add(key)
        after = operator.positions.get(key)
        if after is None and not self.resumed:
            operator.positions[key] = source.seq
            return []
        now = perf_counter_ns()
        reading = channel.backlog.read(source.name, after or 0, source.seq, asked.interest(channel))
        self._note(key, reading.gap)
        for part in reading:
            found += [Letter(None, record, source, seq, at, now, 0) for seq, at, record in part.events()]
        return found

    # ── what is kept from now on ──

    def keep(self, operator: PatternOperator, reached: Points, published: int, had: Iterable[bytes] = ()) -> Points:
        """Write its state. `reached` are positions that are further than the last event that was offered: what is
        between has been judged, and was nothing to it. `had` are matches that will be found again, though they were
        published. The positions as they were written."""
        positions = dict(operator.positions)
        if self._table is None:
            return positions
        for key, seq in reached.items():
            positions[key] = max(seq, positions.get(key, 0))
        snapshot = operator.runner.snapshot(self._elsewhere(positions))
        self._table.keep(
            self.name, Kept(self._fingerprint, self._params, self.since, published, snapshot, frozenset(had))
        )
        self.published, self.written, self.bytes = published, self._node._stamp() // 1000, len(snapshot)
        return positions

    def state(self, operator: PatternOperator) -> bytes:
        """Its state, to be handed over to another node."""
        sources = [source for asked in self._asked for source in list(getattr(asked.target, "sources", {}).values())]
        self.own.update(source.id for source in sources if source.local)
        return operator.runner.snapshot(self._elsewhere(operator.positions))

    def came(self, key: str, after: int) -> None:
        """A source is heard for the first time; its events after this number are the pattern's."""
        where = self._everywhere(key)
        if self._table is None or where is None:
            return
        try:
            self._table.came(self.name, where, after)
        except StoreError as error:
            log.error("pattern %r: it cannot be noted that %s is heard: %s", self.name, key, error)

    def narrow(self) -> frozenset[str]:
        """The nodes that were last asked for bound values only."""
        found = None if self._node.state is None else self._node.state.secret(_NARROW + self.name)
        return frozenset(_names(found)) if found else frozenset()

    def keep_narrow(self, nodes: frozenset[str]) -> None:
        """These nodes are asked so from here on. One that is not among them is asked for everything after a restart, so
        it does no harm if that cannot be written."""
        if self._node.state is None or nodes == self.narrow():
            return
        try:
            self._node.state.keep(_NARROW + self.name, _pack(sorted(nodes)))
        except StoreError as error:
            log.error("pattern %r: it cannot be noted which nodes are asked for bound values: %s", self.name, error)

    def changed(self, pattern: Pattern) -> None:
        """Its parameters have other values."""
        self._params = _pack(plain(pattern.params))

    def forget(self) -> None:
        """It is ended for good."""
        if self._table is not None and self._node.state is not None:
            self._table.forget(self.name)
            self._node.state.forget(self.name)
            self.keep_narrow(frozenset())

    # ── names of sources ──

    def of_others(self, points: Points) -> Points:
        """Positions in sources of other nodes."""
        return {key: seq for key, seq in points.items() if key not in self.own}

    def _elsewhere(self, points: Points) -> Points:
        """Positions as other nodes and later processes know them. In a source that ends with this process there are
        none: a later one of its name counts anew."""
        found = {self._everywhere(key): seq for key, seq in points.items()}
        return {key: seq for key, seq in found.items() if key is not None}

    def _everywhere(self, key: str) -> str | None:
        """The key of a source of this node, as other nodes and later processes know it; None if they know of none."""
        if key not in self.own:
            return key
        logged = {channel.name for channel, _ in self.channels()}
        for asked in self._asked:
            channel: Any = asked.target
            if not key.startswith(f"{channel.name}/"):
                continue
            name = key.removeprefix(f"{channel.name}/")
            if channel.name in logged:
                assert self._node._logs is not None
                return key_of(self._node.name, self._node._logs.id_of(channel.name), name)
            source = channel.sources.get(name)
            return None if source is None else self._node._position_key(source)
        return None

    def _local(self, key: str) -> str:
        """The other way round: a source of this node has its id here."""
        for channel, _ in self.channels():
            assert self._node._logs is not None
            prefix = prefix_of(self._node.name, self._node._logs.id_of(channel.name))
            if key.startswith(prefix):
                made = f"{channel.name}/{unquote(key.removeprefix(prefix))}"
                self.own.add(made)
                return made
        return key


class _InSnapshot:
    """Positions are kept with the pattern's state, and nowhere else."""

    undoes = False

    def __init__(self, positions: Points) -> None:
        self._positions = positions

    def positions(self) -> Points:
        return self._positions

    def handed(self) -> Points:
        return {}

    def unsure(self, known: Iterable[str]) -> set[str]:
        return set()

    def open(self, *, over: bool) -> None:
        """What it hands over is known by its identity."""

    def begin(self, points: Points, noted: Points) -> None:
        """Nothing is handed over that is not kept with the state."""

    def commit(self, points: Points, *, known: bool) -> None:
        """They are kept with the state."""

    def failed(self, points: Points) -> Points:
        return {}

    def end(self, handed: Points, unsure: Collection[str] | None, *, orderly: bool) -> None:
        """It is in the state."""


class PatternProgress(Progress):
    """How far a pattern is with sources of other nodes, as its state was last written: they may forget what is before,
    and send what is after it."""

    moves = leaves_to_log = False

    def __init__(self, subscription: Any, positions: Points) -> None:
        super().__init__(subscription, _InSnapshot(positions), manual=True)

    def kept(self, points: Points) -> None:
        """The state was written, with these positions in it."""
        with self._lock:
            for key, seq in points.items():
                self._done[key] = max(seq, self._done.get(key, 0))

    def passed_by(self, channel: Any, source: Any, seq: int) -> None:
        """Where it begins is written with its state."""

    def forget(self, key: str) -> None:
        """A source is no more."""
        with self._lock:
            for known in (self._done, self._arrived, self._base, self._out, self._last, self.gaps):
                known.pop(key, None)


def remarks(node: NodeContract, channels: Iterable[Channel[Any]], out: Channel[Any]) -> list[str]:
    """What a restart would lose, of a pattern whose state is kept."""
    logs = node._logs
    bare = [each.name for each in channels if logs is None or not logs.wants(each.name)]
    found = []
    if bare:
        found.append(
            f"restart: what sources of this node publish on {', '.join(sorted(bare))} is in no log: events that come "
            "after the state was last written are lost if the process ends"
        )
    if logs is None or not logs.wants(out.name):
        found.append(
            f"restart: matches on {out.name} are in no log: those that were published after the state was last "
            "written are published again, and sinks that are away miss theirs"
        )
    return found


__all__ = ["Keeping", "PatternProgress", "remarks"]
