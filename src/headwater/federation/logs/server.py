"""A node with a log answers questions about it: what it has of which channels and sources, and ranges of events with
the interest of the one that asks run here, so that only what passes leaves.

Reading a channel's log needs the right to subscribe to the channel; an interest that is more than comparisons needs the
right to install code, and may cost what it may cost at a live source. Whatever else is wrong with a question is said in
the answer. An answer has a page at most; the asker goes on from where the page ends. Between two pages of one reading
the node keeps where it was in its files, as long as there is room; if it has forgotten, it looks the place up again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from headwater.channel.names import check_name
from headwater.channel.services import Service
from headwater.errors import FederationError, FrameError, HeadwaterError, SecurityError
from headwater.federation.logs.own_logs import OwnLogs
from headwater.federation.security.envelope import question_name
from headwater.federation.security.policy import Restrict
from headwater.federation.security.session import is_box
from headwater.federation.wire import log_requests as log_messages
from headwater.federation.wire import requests as messages
from headwater.federation.wire.log_requests import ChannelLogged, Head, Listing, Logged, Read, SourceLog
from headwater.federation.wire.requests import pack, pack_params, pack_type, unpack_params
from headwater.interest import Interest, Limits
from headwater.late import pa
from headwater.match.lower import is_plain
from headwater.native.record import uses_meta
from headwater.services.policy.conjunction import restricted
from headwater.store.log.interest_scan import META, Judge, check_columns
from headwater.store.log.reader import Scan
from headwater.types.model import Field, Record

if TYPE_CHECKING:
    from headwater.federation.context import Context
    from headwater.federation.fabric.fabric import Fabric
    from headwater.federation.security.envelope import Opened
    from headwater.federation.security.rules import Principal

ANSWER_SECONDS = 0.5  # that an answer takes, about: an interest that passes little need not reach the end of the log
MOST_CURSORS = 16  # readings that are remembered between two pages,
CURSOR_SECONDS = 10.0  # for so many seconds
MOST_JUDGES = 32  # interests that are kept compiled
FIRST_ROWS, MOST_ROWS = 64, 65_536  # rows that are judged in one go, at first and at most
SHORTEST_STEP_SECONDS, LONGEST_STEP_SECONDS = 0.01, 0.05  # that this should take
ERROR_CHARACTERS = 2000  # characters of a refusal
SEQ = META["seq"]
KNOWN = (META["node"], META["source"])  # columns that do not travel
_COMPRESSIONS = ("", "lz4", "zstd")


@dataclass(slots=True)
class LogReads:
    """What a node's log was asked for, and what has left the node for it: `bytes` are those of events in answers."""

    questions: int = 0
    refused: int = 0
    answers: int = 0
    evaluated: int = 0
    rows: int = 0
    bytes: int = 0

    def as_dict(self) -> dict[str, int]:
        """As plain numbers, for reports."""
        return asdict(self)


class LogRefused(FederationError):
    """A question is not answered, and why."""


class LogServer(Service):
    """A service of a node: answers for its log. `answer` may be called by several threads."""

    name = "log server"

    def __init__(self, context: Context, fabric: Fabric, shelf: OwnLogs, card: Callable[[], messages.Card]) -> None:
        """`card`: what this node says of itself to everybody."""
        self._context, self._fabric, self._shelf, self._card = context, fabric, shelf, card
        # Many processes of one user may ask at a time; they are no members, and are not remembered as such.
        self._verifier = context.keyring.make_verifier(runs=True)
        self._counts = LogReads()
        self._lock = threading.Lock()
        self._cursors: OrderedDict[tuple[Any, ...], _Cursor] = OrderedDict()
        self._judges: OrderedDict[tuple[Any, ...], _Judged] = OrderedDict()
        self._sweeping = False

    @property
    def counts(self) -> LogReads:
        """So far; a copy."""
        with self._lock:
            return LogReads(**asdict(self._counts))

    def start(self) -> None:
        """Before the node is opened, it is said that there is something to ask."""
        self._fabric.on_log = self.answer

    def report(self) -> Mapping[str, Any]:
        return self.counts.as_dict()

    def stop(self) -> None:
        """Let go of files that are open for readings."""
        with self._lock:
            cursors = list(self._cursors.values())
            self._cursors.clear()
        for cursor in cursors:
            cursor.close()

    # ── questions ──

    def answer(self, payload: bytes) -> bytes | None:
        """The answer to a question; a refusal where there is something wrong with it; None where it is not known who
        asks, or whom."""
        if not is_box(payload):
            return self._introduce(payload)
        try:
            exchange, sealed = self._context.keyring.exchange.unbox(payload)
        except SecurityError as error:
            self._context.offences.blame(None, error)
            return None
        return self._context.keyring.exchange.box(exchange, self._answer(sealed))

    def _introduce(self, payload: bytes) -> bytes:
        """To the card of one who wants to ask, this node's own."""
        opened = None
        try:
            opened = self._verifier.open(payload, expected_kind=log_messages.CARD)
            card = messages.card(opened.body)
            if card.node != opened.sender or card.incarnation != opened.incarnation:
                raise SecurityError(f"{opened.sender} speaks of {card.node}", "sender", opened.sender)
            own = pack(self._card())
            sealed = self._context.keyring.seal(
                log_messages.CARD, own, to=opened.sender, run=opened.incarnation, answers=question_name(payload)
            )
            return self._context.keyring.exchange.box(card.exchange, sealed)
        except (SecurityError, FrameError) as error:
            self._context.offences.blame(opened, error)
            return self._refuse(b"", "", str(error), question_name(payload))

    def _answer(self, sealed: bytes) -> bytes:
        """Answer a question about a log. Why it is refused is said in any case; that it cannot be read, or that who
        asks could not prove who it is, is an offence besides."""
        opened = None
        try:
            opened = self._verifier.open(sealed, expected_kind=log_messages.KIND)
            question = log_messages.question(opened.body)
        except (SecurityError, FrameError) as error:
            self._context.offences.blame(opened, error)
            return self._refuse(b"", "", str(error))
        with self._context.decisions.reading():
            return self._decided(opened, question)

    def _decided(self, opened: Opened, question: Logged | Read) -> bytes:
        """The answer to who is known: who changes a policy meanwhile waits for it."""
        try:
            match question:
                case Logged():
                    head, data = self._logged(opened.principal, question)
                case Read():
                    head, data = self._read(opened, question)
        except (HeadwaterError, OSError, pa.ArrowException, OverflowError) as error:
            return self._refuse(question.nonce, opened.sender, str(error) or type(error).__name__)
        with self._lock:
            self._counts.questions += 1
            if isinstance(question, Read):
                self._counts.answers += 1
                self._counts.evaluated += head.evaluated
                self._counts.rows += head.rows
                self._counts.bytes += len(data)
        return self._seal(head, data, opened.sender)

    def _refuse(self, nonce: bytes, to: str, why: str, answers: bytes = b"") -> bytes:
        with self._lock:
            self._counts.questions += 1
            self._counts.refused += 1
        return self._seal(Head(nonce, log_messages.digest(b""), error=why[:ERROR_CHARACTERS]), b"", to, answers)

    def _seal(self, head: Head, data: Any, to: str, answers: bytes = b"") -> bytes:
        envelope = self._context.keyring.seal(log_messages.REPLY, pack(head), to=to, answers=answers)
        return log_messages.join(envelope, data)

    def _allow(self, principal: Principal, action: Any, channel: str, what: str) -> Interest | None:
        """What of the channel it may have, if not all of it; LogRefused, if nothing."""
        verdict = self._context.decisions.decide(principal, action, channel)
        if not verdict:
            raise LogRefused(f"not allowed to {what}: {verdict.why}")
        return verdict.interest if isinstance(verdict, Restrict) else None

    # ── what there is ──

    def _logged(self, principal: Principal, question: Logged) -> tuple[Head, bytes]:
        shelf = self._shelf
        listed = []
        found: ChannelLogged | None = None
        if question.channel:
            self._allow(principal, "subscribe", check_name(question.channel), "read the log")
            found = self._channel(question.channel)
        else:
            allows = self._context.decisions.decide
            listed = [name for name in shelf.channels() if allows(principal, "subscribe", name)]
        data = pack(Listing(shelf.node, listed, found))
        return Head(question.nonce, log_messages.digest(data)), data

    def _channel(self, name: str) -> ChannelLogged | None:
        part = self._shelf.part(name)
        if part is None:
            return None
        spans = part.sources()
        if len(spans) > log_messages.MAX_SOURCES:
            raise LogRefused(f"expected at most {log_messages.MAX_SOURCES:,} sources of {name}, found {len(spans):,}")
        sources = [SourceLog(span.source, span.first, span.last, span.events) for span in spans]
        return ChannelLogged(name, part.id, pack_type(part.type), part.schema.serialize().to_pybytes(), sources)

    # ── events ──

    def _read(self, opened: Opened, question: Read) -> tuple[Head, Any]:
        """One page of a range, as the reader's cursor goes on."""
        limit = self._allow(opened.principal, "subscribe", check_name(question.channel), "read the log")
        if question.compress not in _COMPRESSIONS:
            raise LogRefused(f"compress: expected nothing, lz4 or zstd, found {question.compress!r}")
        cursor = self._cursor(opened, question, limit)
        try:
            batches, evaluated = cursor.page(question.max_bytes)
            data, rows = _packed(batches, cursor.wanted, question.compress)
            if len(data) > log_messages.ANSWER_BYTES:
                raise LogRefused(
                    f"source {question.source!r} of {question.channel}: event {cursor.after:,} takes {len(data):,} "
                    f"bytes, more than the {log_messages.ANSWER_BYTES:,} that an answer may have; read the range after "
                    "it, or without the column that is so large"
                )
        except BaseException:
            cursor.close()
            raise
        head = Head(
            question.nonce,
            log_messages.digest(data),
            next=cursor.after,
            upto=cursor.upto,
            evaluated=evaluated,
            rows=rows,
            first=cursor.first,
        )
        if cursor.after >= cursor.upto:
            cursor.close()
        else:
            self._keep(cursor)
        return head, data

    def _cursor(self, opened: Opened, question: Read, limit: Interest | None) -> _Cursor:
        """Where the asker is: remembered, or looked up."""
        who = opened.sender, opened.incarnation
        columns = None if question.columns is None else tuple(question.columns)
        asked = question.program, question.params, question.fuel, _identity(limit)
        key = who, question.channel, question.source, asked, columns
        with self._lock:
            found = self._cursors.pop((*key, question.upto, question.after), None)
        return self._begin(opened.principal, question, limit, key) if found is None else found

    def _keep(self, cursor: _Cursor) -> None:
        now = monotonic()
        cursor.used = now
        with self._lock:
            key = *cursor.key, cursor.upto, cursor.after
            over = [self._cursors.pop(key)] if key in self._cursors else []
            self._cursors[key] = cursor
            sweep, self._sweeping = not self._sweeping, True
            while len(self._cursors) > MOST_CURSORS or now - next(iter(self._cursors.values())).used > CURSOR_SECONDS:
                over.append(self._cursors.popitem(last=False)[1])
        for each in over:
            each.close()
        if sweep:
            self._context.scheduler.later(CURSOR_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Readings that nobody goes on with hold no files: others may be waiting to exchange them."""
        now = monotonic()
        with self._lock:
            over = [key for key, cursor in self._cursors.items() if now - cursor.used >= CURSOR_SECONDS]
            cursors = [self._cursors.pop(key) for key in over]
            self._sweeping = bool(self._cursors)
            again = self._sweeping
        for cursor in cursors:
            cursor.close()
        if again:
            self._context.scheduler.later(CURSOR_SECONDS / 2, self._sweep)

    def _begin(self, principal: Principal, question: Read, limit: Interest | None, key: tuple[Any, ...]) -> _Cursor:
        """A cursor for a new range: what may be read, up to where, and what is judged on the way. What a policy
        restricts is judged as well."""
        part = self._shelf.part(question.channel)
        if part is None:
            raise LogRefused(f"there is no log of channel {question.channel!r} here")
        last = part.last(question.source)
        if last is None:
            raise LogRefused(f"the log of {question.channel} here has no source {question.source!r}")
        upto = last if question.upto is None else question.upto
        if upto > last:
            raise LogRefused(
                f"source {question.source!r} of {question.channel}: expected a range up to {last}, where its log ends, "
                f"found {upto}; what was there before is lost, or another log was there"
            )
        if question.after > upto:
            raise LogRefused(f"expected a range that begins at or before {upto}, found one after {question.after}")
        judged = None
        if question.program is None and question.params is not None:
            raise LogRefused("parameters came without an interest")
        if question.program is not None or limit is not None:
            judged = self._judge(principal, question, limit, part)
            needs: list[str] | None = judged.judge.needs
            wanted = list(judged.judge.schema.names)
        else:
            wanted = part.schema.names if question.columns is None else question.columns
            wanted = check_columns(wanted, part.schema.names)
            needs = None if question.columns is None else list(dict.fromkeys([*wanted, SEQ]))
        if question.columns is not None:
            wanted = question.columns
        if len(set(wanted)) != len(wanted):
            raise LogRefused("columns: expected each once, found some twice")
        batches = part.scan(question.source, question.after, upto, needs)
        return _Cursor(key, batches, judged, wanted, question.after, upto)

    def _judge(self, principal: Principal, question: Read, limit: Interest | None, part: Any) -> _Judged:
        """What judges the events: the interest that was sent, as far as the policy lets its sender have them."""
        if part.type is None:
            raise LogRefused(f"channel {question.channel} carries bytes here, which no interest can look into")
        columns = None if question.columns is None else tuple(question.columns)
        asked = question.program, question.params, question.fuel, _identity(limit)
        key = question.channel, asked, columns, part.schema.to_string()
        with self._lock:
            found = self._judges.get(key)
            if found is not None:
                self._judges.move_to_end(key)
        if found is None:
            sent = None if question.program is None else _interest(question, part.schema)
            interest = sent if limit is None else restricted(sent, limit, part.type)
            assert interest is not None
            found = _Judged(interest, sent, part.schema, columns)
            self._check_cost(found.interest, question.channel)
            with self._lock:
                self._judges[key] = found
                while len(self._judges) > MOST_JUDGES:
                    self._judges.popitem(last=False)
        if not found.plain:
            self._allow(principal, "install", question.channel, "install code")
        return found

    def _check_cost(self, interest: Interest, channel: str) -> None:
        cost, most = interest.cost.estimated, self._context.network.budget.each
        if cost > most:
            raise LogRefused(
                f"too costly: this interest in {channel} would take about {cost:,} native operations an event, more "
                f"than {most:,}"
            )


def _identity(limit: Interest | None) -> Any:
    """By which a restriction is known from others."""
    return None if limit is None else (limit.fingerprint, pack_params(limit.params))


def _interest(question: Read, schema: pa.Schema) -> Interest:
    """What was sent, checked as any interest is; fields that no event of the log has are missing."""
    assert question.program is not None
    fuel = question.fuel
    most = Limits().fuel
    if fuel is not None and fuel > most:
        raise LogRefused(f"fuel: expected at most {most:,}, found {fuel:,}")
    limits = None if fuel is None else Limits(fuel=fuel)
    interest = Interest.loads(question.program, unpack_params(question.params), limits=limits)
    if interest.stateful:
        raise LogRefused(
            "an interest with state cannot be run over part of a log, for what it remembers of the events before is "
            "not there; read without it, and run it where all events of a source come in order"
        )
    record = interest.type.record
    if any(field.name not in schema.names and not field.optional for field in record.fields):
        fields = (
            field if field.name in schema.names else Field(field.name, field.type, True) for field in record.fields
        )
        interest = interest.on(Record(record.name, tuple(fields)))
    return interest


class _Judged:
    """An interest, ready for a log; it may be used by several readings at once."""

    def __init__(
        self, interest: Interest, sent: Interest | None, schema: pa.Schema, columns: tuple[str, ...] | None
    ) -> None:
        self.interest = interest
        # Whether what was sent is nothing but comparisons: what the policy adds is this node's own.
        self.plain = sent is None or (sent.output is None and not uses_meta(sent.executed.program) and is_plain(sent))
        needed = None if columns is None else list(dict.fromkeys([*columns, SEQ]))
        self.judge = Judge(interest, schema, columns=needed)
        self._rows = FIRST_ROWS

    def __call__(self, batch: pa.RecordBatch) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """Of some rows at a time: how many, the last one's sequence number, and what passes.

        What others have sent may be slow for some events: never so much at once that nobody else gets a turn."""
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, self._rows)
            before = perf_counter()
            made = self.judge(part)
            spent = perf_counter() - before
            if spent > LONGEST_STEP_SECONDS:
                self._rows = max(FIRST_ROWS, part.num_rows // 2)
            elif spent < SHORTEST_STEP_SECONDS and part.num_rows == self._rows:
                self._rows = min(MOST_ROWS, 2 * self._rows)
            start += part.num_rows
            yield part.num_rows, _last(part), made


class _Cursor:
    """A reading under way: what comes next, and where that is. Used by one thread at a time."""

    def __init__(
        self,
        key: tuple[Any, ...],
        batches: Scan,
        judged: _Judged | None,
        wanted: list[str],
        after: int,
        upto: int,
    ) -> None:
        self.key, self.wanted, self.after, self.upto = key, wanted, after, upto
        self.used = 0.0
        self._files = batches
        self._parts = self._judged(judged)
        self._rest: tuple[int, pa.RecordBatch] | None = None  # what was too much for a page, and where it ends

    def _judged(self, judged: _Judged | None) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        for batch in self._files:
            if judged is None:
                yield batch.num_rows, _last(batch), batch
            else:
                yield from judged(batch)

    def page(self, limit: int) -> tuple[list[pa.RecordBatch], int]:
        """The next events, about so many bytes of them; and how many were evaluated."""
        found: list[pa.RecordBatch] = []
        size = evaluated = 0
        end = monotonic() + ANSWER_SECONDS
        while size < limit and monotonic() < end:
            if self._rest is not None:
                (last, batch), self._rest = self._rest, None
            else:
                count, last, batch = next(self._parts, (0, self.upto, None))
                evaluated += count
            if batch is None:
                self.after = self.upto
                break
            if batch.num_rows:
                fits = _fitting(batch, limit - size) or (0 if found else 1)
                if fits < batch.num_rows:
                    self._rest = last, batch.slice(fits)
                    if fits == 0:
                        break
                    batch = batch.slice(0, fits)
                    last = _last(batch)
                found.append(batch)
                size += batch.nbytes
            self.after = last
        return found, evaluated

    @property
    def first(self) -> int:
        """The first number of the source that there was when this began."""
        found = self._files.first
        return self.upto + 1 if found is None else found

    def close(self) -> None:
        self._files.close()


def _last(batch: pa.RecordBatch) -> int:
    return int(batch.column(SEQ)[batch.num_rows - 1].as_py())


def _fitting(batch: pa.RecordBatch, size: int) -> int:
    """How many of the first rows take at most so many bytes."""
    if batch.nbytes <= size:
        return int(batch.num_rows)
    low, high = 0, int(batch.num_rows)
    while high - low > 1:
        middle = (low + high) // 2
        if batch.slice(0, middle).nbytes <= size:
            low = middle
        else:
            high = middle
    return low


def _packed(batches: list[pa.RecordBatch], wanted: list[str], compress: str) -> tuple[Any, int]:
    """As an Arrow stream of one batch; nothing at all where there is nothing. The asker knows node and source."""
    if not batches:
        return b"", 0
    table = pa.Table.from_batches(batches).select([name for name in wanted if name not in KNOWN] or [SEQ])
    if len(batches) > 1:
        table = table.combine_chunks()
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compress or None)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue()), table.num_rows


__all__ = ["LogReads", "LogServer"]
