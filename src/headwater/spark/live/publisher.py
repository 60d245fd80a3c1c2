"""Publishing the batches of a streaming query to a channel, each of them once.

    with Publisher("ie.tcd.alarm", query=query_id, log="events", connect="tcp/127.0.0.1:7447") as publisher:
        publisher.publish(batch_id, batches)

Each batch is kept in a journal before its first event is published, with the sequence number that the source has then.
The source's own log says how far publishing got. So a batch that is published again, after an error or by another
process after this one was killed, goes on where it ended, with the events of the first attempt: they need not come in
the same order again. A batch from before the latest is not published again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.names import check_name
from headwater.errors import (
    ChannelError,
    ConfigError,
    ConfigProblem,
    EncodeError,
    FederationError,
    StoreError,
    Unreachable,
)
from headwater.federation.node import Node
from headwater.federation.readiness import STRANGER_SECONDS
from headwater.federation.security.identity import MAX_NAME, legal_name
from headwater.federation.wire.requests import Heard
from headwater.late import pa
from headwater.spark.live.journal import Journal, Staged
from headwater.store.log.layout import ChannelFolder, encode_name
from headwater.store.log.schema import read_table
from headwater.store.log.settings import Log

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.source import Source
    from headwater.federation.network import Network
    from headwater.federation.security.settings import Security

log = logging.getLogger("headwater.federation")
WAIT = 10.0  # seconds for those who are to hear of the source, and for what they are to acknowledge
ROWS = 8192  # events that are published in one go
PAUSE = 0.01  # seconds before a node is asked again
JOURNALS = ".publishing"  # in the folder of a log; hidden, and so no channel's
_ILLEGAL = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a batch: so many `rows` were published by this call, and `before` by earlier ones; `last` is the
    sequence number of the source now; `delivered`: all nodes that are there have dealt with it."""

    rows: int
    before: int
    last: int
    delivered: bool = True


class Publisher:
    """One query's writing to one channel: a node with one source, both named `spark-<query>`.

    channel    its name; `type` may be left out if another node of the federation, or the log, has the channel
    query      what tells this query from all others, and stays the same when it is started again
    log        the folder of a log, or a Log: what is published is logged there, and the log says how far it got
    journal    the folder of the journal, if not in that of the log; without a log it must be given, and what was under
               way when the process was killed, at most 8,192 events, is published twice
    node       the node's name, where that is not free: with a certificate, it is the certificate's
    wait       seconds: for the nodes that are there to say what they want of the source, for another process to let go
               of the journal and the log, and for what was published to be acknowledged

    The rest is as for a Node.
    """

    def __init__(
        self,
        channel: str,
        *,
        query: str,
        type: Any = None,
        log: Log | str | os.PathLike[str] | None = None,
        journal: str | os.PathLike[str] | None = None,
        node: str | None = None,
        listen: str | int | Sequence[str] | None = None,
        connect: str | int | Sequence[str] | None = None,
        federation: str | None = None,
        security: Security | Mapping[str, Any] | str | None = None,
        network: Network | Mapping[str, Any] | None = None,
        wait: float = WAIT,
    ) -> None:
        check_name(channel)
        if not isinstance(query, str) or not query:
            raise ConfigError([ConfigProblem("Publisher: query", "the query's id or name", repr(query))])
        settings = Log(log, sync="publish") if isinstance(log, str | os.PathLike) else log
        if settings is None and journal is None:
            hint = "give log= (a folder) too, or journal= for the journal alone"
            raise ConfigError([ConfigProblem("Publisher: log", "a folder for what was published", "none", hint)])
        name = publisher_name(query)
        if journal is None:
            assert settings is not None
            journal = Path(settings.folder) / JOURNALS / f"{name} {encode_name(channel)}"
        self._wait, self._lock = wait, threading.Lock()
        self._journal = Journal(journal, wait=wait)
        self._node: Node | None = None
        try:
            self._node = self._open(
                node or name, settings, listen=listen, connect=connect, federation=federation, security=security,
                network=network,
            )  # fmt: skip
            self.channel = self._channel(channel, type, settings)
            self._source: Source = self._source_of(name)
            self._logged = self._node._logs is not None and self._node._logs.known(channel) is not None
            self._meet()
        except BaseException:
            self.close()
            raise

    # ── opening and closing ──

    def _open(self, name: str, settings: Log | None, **network: Any) -> Node:
        return Node(name, log=settings, **network)

    def _channel(self, name: str, type: Any, settings: Log | None) -> Channel:
        node = self._node
        assert node is not None
        if type is not None:
            return node.channel(name, type)
        self._connect()
        if settings is not None and not node.has_channel(name):
            table = read_table(ChannelFolder.of(settings.folder, name))
            if table is not None:
                return node.channel(name, bytes if table.type is None else table.type)
        if not node.until(lambda: node.has_channel(name), self._wait if node._federated else 0.0):
            raise ChannelError(
                f"channel {name!r}: expected one that the log or a node of the federation has, found none; give a type"
            )
        return node.channel(name)

    def _source_of(self, name: str) -> Source:
        """The source; a process that had its log, and has ended by now, may take a moment to let go of it."""
        end, pause = monotonic() + self._wait, threading.Event()
        while True:
            try:
                return self.channel.source(name)
            except StoreError:
                if monotonic() > end:
                    raise
                pause.wait(PAUSE)

    def _connect(self) -> None:
        """Until the nodes that are there are known. `Unreachable` if there was to be one, and is not."""
        node = self._node
        assert node is not None
        engine = node._engine
        if engine is None:
            return
        fabric, began = engine.fabric, monotonic()

        def met() -> bool:
            known = {peer.id for peer in engine.everyone() if peer.state is not None and peer.gone is None}
            strangers = {each for each, _ in fabric.alive} - known
            if strangers and monotonic() < began + STRANGER_SECONDS:
                return False  # who is only said to be there is not waited for any longer
            return bool(known) or not engine.network.connect

        if not node.until(met, self._wait):
            if fabric.alive:
                log.warning("node %s: not all nodes have said what they have", node.name)
                return
            where = ", ".join(engine.network.connect)
            raise Unreachable(f"no node of federation {engine.network.federation!r} answers at {where}")

    def _meet(self) -> None:
        """Until every node that is there knows of the source, and what it wants of it is in force."""
        node = self._node
        assert node is not None
        engine, end, pause = node._engine, monotonic() + self._wait, threading.Event()
        if engine is None:
            return
        self._connect()
        question = Heard(self.channel.name, self._source.number)
        for peer in engine.everyone():
            while peer.gone is None:
                try:
                    engine.dialogue.ask(peer, question, max(0.1, end - monotonic()))
                    break
                except FederationError as error:
                    if monotonic() > end:
                        log.warning("node %s: %s has not heard of the source: %s", node.name, peer.name, error)
                        break
                pause.wait(PAUSE)

    def close(self) -> None:
        """Leave the federation; may be called again."""
        node, self._node = self._node, None
        if node is not None:
            node.close(timeout=self._wait)
        self._journal.close()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ── publishing ──

    @property
    def node(self) -> Node:
        if self._node is None:
            raise StoreError("expected an open publisher, found that it was closed; open another")
        return self._node

    def publish(self, batch: int, events: Iterable[pa.RecordBatch] | pa.RecordBatch | pa.Table) -> Published:
        """Publish a batch, or what is left of it. Numbers of batches increase.

        All events are checked before the first is published. When this returns they are in the log, synced."""
        if not isinstance(batch, int) or isinstance(batch, bool) or batch < 0:
            raise EncodeError("batch", f"expected a number from 0, found {batch!r}")
        with self._lock:
            self.node  # noqa: B018 - it is open
            latest = self._journal.latest()
            if latest is not None:
                rows, before = self._finish(latest)  # it comes before all later ones, should it not be whole
                if batch <= latest.batch:
                    mine = batch == latest.batch
                    return self._ended(rows if mine else 0, before if mine else 0, wait=bool(rows))
            made = list(self._checked(events))
            if not sum(each.num_rows for each in made):
                return self._ended(0, 0, wait=False)
            staged = self._journal.stage(batch, self._source.seq, made[0].schema, made)
            rows, before = self._finish(staged)
            return self._ended(rows, before, wait=True)

    def _ended(self, rows: int, before: int, *, wait: bool) -> Published:
        delivered = not wait or self.node.flush(self._wait)
        if not delivered:
            log.warning("%s: not all nodes have dealt with what was published", self._source)
        return Published(rows, before, self._source.seq, delivered)

    def _checked(self, events: Any) -> Iterator[pa.RecordBatch]:
        """As events of the channel, some at a time."""
        if isinstance(events, pa.RecordBatch):
            events = [events]
        elif isinstance(events, pa.Table):
            events = events.to_batches()
        type = self.channel.type
        for batch in events:
            if type is not None:
                batch = type.conform(batch, check=True)
            elif batch.schema.names != ["data"] or batch.column(0).type != pa.binary() or batch.column(0).null_count:
                found = ", ".join(f"{field.name}: {field.type}" for field in batch.schema)
                raise EncodeError("data", f"channel {self.channel.name} carries bytes; expected binary, found {found}")
            for start in range(0, batch.num_rows, ROWS):
                yield batch.slice(start, ROWS)

    def _done(self, staged: Staged) -> int:
        """How many events of the batch are published."""
        if not self._logged:
            return self._journal.progress(staged)
        done = self._source.seq - staged.after
        if done < 0:
            raise StoreError(
                f"{self._source}: expected a log that ends at event {staged.after:,} or later, where batch "
                f"{staged.batch:,} begins, found one that ends at {self._source.seq:,}: it is another log, or was cut; "
                "give the query another name, and another journal"
            )
        return min(done, staged.rows)

    def _finish(self, staged: Staged) -> tuple[int, int]:
        """Publish what is left of the batch: how many events, and how many were before."""
        before = done = self._done(staged)
        if done >= staged.rows:
            return 0, done
        for batch in self._journal.rest(done):
            self._publish(batch)
            done += batch.num_rows
            if not self._logged:
                self.node.flush(self._wait)
                self._journal.note(staged, done)
        return done - before, before

    def _publish(self, batch: pa.RecordBatch) -> None:
        type = self.channel.type
        if type is None:
            self._source.publish_many(batch.column(0).to_pylist())
        else:
            self._source.publish_many(batch.replace_schema_metadata(type.schema.metadata))


def publisher_name(query: str) -> str:
    """The name of the node and the source of a query."""
    plain = f"spark-{query}"
    if legal_name(plain):
        return plain
    digest = hashlib.sha256(query.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{_ILLEGAL.sub('-', plain)[: MAX_NAME - 13]}-{digest}"


__all__ = ["Published", "Publisher", "publisher_name"]
