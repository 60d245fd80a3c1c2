"""`node.objects`: types, transactions, reading, watching and exporting a node's objects.

node = headwater.Node("plant", state="plant.state")
objects = node.objects
objects.type("Vehicle", "position: {x: f64, y: f64}, speed: f64")
with objects.transaction() as t:
    car = t.create("car", "Vehicle", position={"x": 0.0, "y": 0.0}, speed=1.0)
    t.update(car, {"position.x": t.read("car.position.x") + 1}, event=True)
objects["car"].position.x
"""

from __future__ import annotations

import builtins
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from headwater.channel.names import check_name
from headwater.channel.objects.alarms import Alarms
from headwater.channel.objects.outlets import SOURCE, ChannelOutlets
from headwater.channel.objects.quality import HasServices
from headwater.channel.objects.replicas import OwnReplicas, tells_time
from headwater.channel.objects.spreading import Spreading
from headwater.channel.objects.steering import Apply, Steering, SteeringDesk, path_of
from headwater.channel.objects.triggers import HasTriggers
from headwater.channel.services import Service
from headwater.errors import ClosedError, ObjectError, ServiceError
from headwater.interest import Interest, as_event_type
from headwater.late import asyncio, pa
from headwater.objects.builder import Computed, Submitted, TransactionBuilder
from headwater.objects.engine import Kept, ObjectEngine
from headwater.objects.limits import Given
from headwater.objects.names import object_name
from headwater.objects.object_types import CHANNEL, ObjectType, change_type
from headwater.objects.operations import TICKET, Outcome, Transaction
from headwater.objects.replicas.quality import QualityServices
from headwater.objects.turn import Cascades
from headwater.objects.zones.coordinator import Terms
from headwater.objects.zones.homes import Homes
from headwater.objects.zones.steady_time import SteadyTime
from headwater.objects.zones.watches import Watches
from headwater.store.log.log_folder import LogFiles
from headwater.text_tables import table
from headwater.types import EventType, event_type
from headwater.types.declaration import parse_record

if TYPE_CHECKING:
    from headwater.channel.backlog.node_logs import NodeLogs
    from headwater.channel.channel import Channel
    from headwater.channel.routing.wiring import Wiring
    from headwater.channel.services import Services
    from headwater.channel.source import Source
    from headwater.channel.subscription import Subscription
    from headwater.channel.time.clock import Clock
    from headwater.channel.time.timer_engine import Timers
    from headwater.objects.replicas.spec import ReplicaSpec
    from headwater.store import NodeState
    from headwater.threads import Crashes

F = TypeVar("F", bound=Callable[..., Any])
SERVICE = "objects"
_OPENING = threading.Lock()


class ObjectNode(Protocol):
    """As much of a node as its objects need."""

    name: str
    clock: Clock
    services: Services
    state: NodeState | None
    subscriptions: dict[str, Subscription[Any]]
    _crashes: Crashes
    _logs: NodeLogs | None
    _timers: Timers
    _wiring: Wiring

    @property
    def _steady(self) -> Callable[[], int]:
        """The time in nanoseconds, which does not go back."""
        ...

    def _spreading(self) -> Spreading | None:
        """Who carries what triggers over several nodes say."""
        ...

    def channel(self, name: str, type: Any = None) -> Channel[Any]:
        """The channel of that name."""
        ...

    def channels(self, pattern: str = "**") -> list[Channel[Any]]:
        """Channels whose names fit."""
        ...

    def _add_source(self, channel: Channel[Any], name: str | None, **options: Any) -> Any: ...

    def _by_name(self, where: str) -> Any:
        """The entry of a library that a name stands for."""
        ...


class Objects(HasTriggers, HasServices, Service):
    """The objects of one node; threads may share it. Made by `node.objects`."""

    name = SERVICE

    def __init__(self, node: ObjectNode, state: NodeState) -> None:
        self._node = node
        self._replicas = OwnReplicas(node, state, lambda name: self.types.get(name))
        self._services = QualityServices()
        self._outlets, self._logs = ChannelOutlets(node, self._replicas.come_to), node._logs
        self._steering = SteeringDesk(node.name, node._crashes)
        spreading = node._spreading()
        terms = Terms() if spreading is None else spreading.terms
        self.watches = Watches(lambda: 1000 * node.clock.time(), terms.error)
        self.homes = Homes(SteadyTime(node.clock.time, node.clock.now), terms)
        self.engine = ObjectEngine(
            node.name,
            state,
            self._outlets,
            self._outlets.type_of,
            crashes=node._crashes,
            now=lambda: node._steady() // 1000,  # also if the clock is set back
            observers=(self._steering, self.watches, self.homes, self._replicas.observer, self._services),
        )
        self.homes.attach(
            self.engine.triggers, lambda transaction, told: self.engine.submit(transaction, waits=True, told=told)
        )
        self._named_triggers = {}
        self._replicas.serve(self.engine)
        self._started = False
        self._alarms = Alarms(node, lambda transaction: self.engine.submit(transaction, waits=True))
        self.engine.triggers.wait_with(self._alarms, self._alarms)

    # ── as a service of the node ──

    def start(self) -> None:
        """Run what is queued, and send what has not left."""
        self._started = True
        self.engine.start()
        spreading = self._node._spreading()
        if spreading is not None:
            spreading.attach(self)

    @property
    def busy(self) -> bool:
        """Whether something is in line, or is to leave."""
        return self._started and self.engine.busy

    def drain(self, until: float) -> None:
        """Until what is in line has run, and has left."""
        self.engine.drain(max(0.0, until - monotonic()))

    def stop(self) -> None:
        """What is queued, or has not left, is in the file."""
        self._alarms.close()
        self._replicas.close()
        self._steering.stop()
        if self._started:
            self._started = False
            self.engine.close()

    def report(self) -> Mapping[str, Any]:
        """Counts, and how far everything is."""
        triggers = {name: each.report() for name, each in self.triggers.items()}
        return {
            **self.engine.report(),
            "triggers": triggers,
            "lost triggers": dict(self.engine.triggers.lost),
            "steering": self._steering.report(),
            "replicas": self._replicas.observer.report(),
        }

    @property
    def cascades(self) -> Cascades:
        """How far what triggers cause may go in one turn, and what becomes of one that goes further; it may be set."""
        return self.engine.turns.cascades

    @cascades.setter
    def cascades(self, bounds: Cascades) -> None:
        self.engine.turns.cascades = bounds  # a turn looks at it with each transaction that is caused

    # ── types and methods ──

    def type(self, name: str, fields: Any, *, limits: Given | None = None) -> EventType:
        """Declare a type of objects under a name, for good: an Event class, an EventType, a declaration such as
        `"x: f64, y: f64"`, or an Arrow schema. The same again changes nothing.

        `limits` are the least and the greatest number of members, None for none: `{"x": (0.0, 10.0)}`. A transaction
        that would leave an object outside of them is refused, whoever submits it. They stay until others are given."""
        made = event_type(parse_record(fields, name)) if isinstance(fields, str) else as_event_type(fields)
        channel = check_name(CHANNEL + name)
        if tells_time(channel):
            raise ObjectError(f"type {name!r}: expected a name that does not end as channels of replicas do, found one")
        if name not in self.engine.types:
            self._outlets.open(channel, change_type(made), 0)  # what does not fit the channel is refused here
        return self.engine.declare(name, made, limits=limits).type

    def limit_rates(self, type: str, rates: Mapping[str, float], *, burst: float = 1.0) -> None:
        """Declare by how much members of a type's objects change in a second at most, for good: between any two times,
        by at most rate x (the seconds between them + `burst`). A transaction that would change one faster is refused,
        whoever submits it. Replicas know by that how far they may be off now. None at all takes it back; while others
        hold replicas, rates can be made stricter only."""
        self.engine.limit_rates(type, rates, burst, self._replicas.observer.holds_type)

    @property
    def types(self) -> dict[str, EventType]:
        """All declared types, by name."""
        return {name: each.type for name, each in self.engine.types.items()}

    @overload
    def method(self, type: str, function: F, *, name: str | None = None, event: bool = False) -> F: ...
    @overload
    def method(
        self, type: str, function: None = None, *, name: str | None = None, event: bool = False
    ) -> Callable[[F], F]: ...
    def method(self, type: str, function: Any = None, *, name: str | None = None, event: bool = False) -> Any:
        """Register a function as a method of objects of a type, also as a decorator: `@objects.method("Vehicle")`.

        It is called in a turn, with the object and the arguments, which its annotations type. If it returns the type of
        the object, that is its new value, with an `event` or silently. It must be quick, and wait for nothing."""

        def register(given: Any) -> Any:
            self.engine.method(type, given, name or given.__name__, event=event)
            return given

        return register if function is None else register(function)

    # ── transactions ──

    def transaction(self, *, ticket: bytes = b"", params: Mapping[str, Any] | None = None) -> Submitted:
        """A transaction that is submitted at the end of its `with` (or `async with`) block, which then waits for it:
        TransactionError if it was not done."""
        return Submitted(self._node.name, self.submit, self.submit_async, ticket=ticket, params=params)

    def builder(self, *, ticket: bytes = b"", params: Mapping[str, Any] | None = None) -> TransactionBuilder:
        """A transaction that is built now and submitted later."""
        return TransactionBuilder(self._node.name, ticket=ticket, params=params)

    @overload
    def submit(self, transaction: Transaction | TransactionBuilder, *, wait: Literal[True] = True) -> Outcome: ...
    @overload
    def submit(self, transaction: Transaction | TransactionBuilder, *, wait: Literal[False]) -> bytes: ...
    def submit(self, transaction: Transaction | TransactionBuilder, *, wait: bool = True) -> Outcome | bytes:
        """Have it run. With `wait`, its outcome when that is durable (TransactionError if it was not done); else its
        ticket, as soon as it is certain to run, whatever happens: `outcome(ticket)` says later what came of it."""
        item = self.engine.submit(_built(transaction), waits=wait, here=True)
        found = item.wait()
        if not wait:
            return item.ticket
        done: Outcome = found
        return done.check()

    async def submit_async(self, transaction: Transaction | TransactionBuilder) -> Outcome:
        """The same from a coroutine, without stopping the loop."""
        return (await self._outcome_async(_built(transaction))).check()

    async def _outcome_async(self, transaction: Transaction) -> Outcome:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Outcome] = loop.create_future()

        def settle(outcome: Any) -> None:
            if not done.done():
                (done.set_exception if isinstance(outcome, BaseException) else done.set_result)(outcome)

        def told(outcome: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(settle, outcome)

        self.engine.submit(transaction, waits=True, told=told)
        return await done

    def outcome(self, ticket: bytes) -> Outcome | None:
        """What has become of a transaction with a ticket, for a day after it ran, also after a restart; None while it
        waits. ObjectError if there is none."""
        if not isinstance(ticket, bytes) or len(ticket) != TICKET:
            raise ObjectError(f"outcome: expected a ticket, {TICKET} bytes, found {ticket!r}")
        return self.engine.outcome(ticket)

    @staticmethod
    def ticket() -> bytes:
        """A new one: give it to a transaction that may have to be submitted again, and runs once all the same."""
        return os.urandom(TICKET)

    # ── reading ──

    def get(self, name: str) -> Kept | None:
        """An object as it is now, with its turn and time; None if there is none. Turns go on meanwhile."""
        return self.engine.get(name)

    def __getitem__(self, name: str) -> Any:
        """The value of an object (an instance of its type's class) or member; KeyError if there is no such object."""
        kept = self.engine.get(name)
        if kept is None:
            raise KeyError(name)
        value = kept.value
        for field in self.engine.member_path(name):
            value = None if value is None else getattr(value, field)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.engine.get(name) is not None

    def __len__(self) -> int:
        return len(self.engine)

    def list(self, pattern: str = "**") -> Iterator[Kept]:
        """Objects whose names fit (`fleet/*`, `**`), by name, as they are while this goes on."""
        return self.engine.listed(pattern)

    def show(self, pattern: str = "**", *, most: int = 100) -> str:
        """A table of objects for people."""
        rows: builtins.list[tuple[str, str, str, int | None]] = []
        for kept in self.list(pattern):
            if len(rows) == most:
                rows.append(("…", "", "", None))
                break
            text = self.engine.types[kept.type].type.to_json(kept.value)
            rows.append((kept.name, kept.type, text, kept.turn))
        return "\n".join(table(("object", "type", "value", "turn"), rows, indent=""))

    def to_arrow(self, type: str, pattern: str = "**") -> Any:
        """Objects of a type as an Arrow table: their fields, and `object`, `turn` and `at` before them."""
        rows = list(self.engine.records(type, pattern))
        of = self.engine.types.named(type).type
        batch = of.records_to_arrow([record for _, record, _, _ in rows])
        columns = {
            "object": pa.array([f"//{self._node.name}/{name}" for name, *_ in rows], pa.string()),
            "turn": pa.array([turn for _, _, turn, _ in rows], pa.uint64()),
            "at": pa.array([at for *_, at in rows], pa.timestamp("us", tz="UTC")),
        }
        return pa.table({**columns, **dict(zip(batch.schema.names, batch.columns, strict=True))})

    def to_pandas(self, type: str, pattern: str = "**") -> Any:
        """The same as a pandas frame."""
        return self.to_arrow(type, pattern).to_pandas()

    def history(self, type: str, name: str | None = None) -> Any:
        """The changes of a type's objects, or of one, as an Arrow table: what this node's log has of them, so that it
        needs one. Columns are those of a log, and `object`, `op`, `old`, `new`, `turn` and `at`."""
        logs = self._logs
        found = self.engine.types.named(type)
        if logs is None or not logs.wants(found.channel):
            raise ObjectError(
                f"history: expected a node that logs {found.channel}, found that {self._node.name!r} does not; "
                f'open it with a log: Node({self._node.name!r}, state=…, log="events")'
            )
        read = LogFiles(logs.settings.folder, nodes=[logs.node])
        interest = None
        if name is not None:
            whole = str(object_name(name, self._node.name).whole)
            interest = Interest("object = :name", found.change, params={"name": whole})
        batches = list(read.read(found.channel, logs.node, SOURCE, interest=interest))
        return pa.Table.from_batches(batches, None if batches else read.schema(found.channel))

    def replica_spec(self, replica: int) -> ReplicaSpec | None:
        """What a replica that somebody holds is of; None if nobody does."""
        found = self._replicas.observer.held.get(replica)
        return None if found is None else found.spec

    def replica_page(
        self, replica: int, holder: str, after: str, most: int
    ) -> builtins.list[tuple[str, bytes, int, int, int]] | None:
        """What holders of a replica were told last of objects after a path, as it is committed: path, record, time and
        turn, and whether it stays so. None if that one does not hold it."""
        return self._replicas.page(replica, holder, after, most)

    # ── watching ──

    def changes(self, type: str) -> Channel[Any]:
        """The channel of the changes of a type's objects: `object`, `op`, `old`, `new`, `turn` and `at`."""
        found = self.engine.types.named(type)
        self._outlets.ready(found.channel, found.change)  # first: a durable sink is to find what it missed
        return self._node.channel(found.channel, found.change)

    def watch(
        self, name: str, handler: Callable[..., Any] | None = None, where: str | None = None, **options: Any
    ) -> Subscription[Any]:
        """Subscribe to the changes of one object that exists, as to a channel; `where` is a condition over `old`,
        `new`, `op`, `turn` and `at`. What is updated without an event is not told."""
        kept = self.engine.get(name)
        if kept is None:
            raise ObjectError(
                f"watch {name!r}: expected an object that exists, found none; watch changes(type) instead"
            )
        quoted = kept.name.replace("'", "''")
        wanted = f"object = '{quoted}'" + (f" and ({where})" if where else "")
        return self.changes(kept.type).subscribe(handler, wanted, **options)

    # ── steering ──

    def steer(self, name: str, source: Source[Any], *, type: str, apply: Apply | None = None) -> Steering:
        """Have a source of this node take up the settings that an object has, now and whenever they change.

        The object is of a declared type whose fields are in the source's context; where it is not there yet, it is made
        with what the context has. `apply` is called with the settings, after they are durable, and makes them so; then
        the context says so too. If it raises, the context stays, and that is reported."""
        path, of = path_of(name, self._node.name), self.engine.types.named(type)
        made = self._steering.add(path, of, source, apply)
        try:
            kept = self.engine.get(path) or self._wanted(path, of, made)
            if kept.type != type:
                raise ObjectError(f"steer {name!r}: expected an object of type {type!r}, found one of {kept.type!r}")
        except BaseException:
            made.close()
            raise
        self._steering.want(made, of.type.encode(kept.value), kept.turn, first=True)
        return made

    def _wanted(self, path: str, type: ObjectType, steering: Steering) -> Kept:
        """An object is made of what a context has; TransactionError if it may not be so."""
        with self.transaction() as t:
            t.create(path, type.name, steering.settings)
        kept = self.engine.get(path)
        assert kept is not None
        return kept

    def __repr__(self) -> str:
        return f"<Objects of {self._node.name}>"


def _built(transaction: Transaction | TransactionBuilder) -> Transaction:
    if isinstance(transaction, TransactionBuilder):
        return transaction.build()
    if not isinstance(transaction, Transaction):
        raise ObjectError(
            f"submit: expected what objects.builder() builds, found {transaction.__class__.__name__}; "
            "or use a block: with objects.transaction() as t"
        )
    return transaction


def objects_of(node: ObjectNode) -> Objects:
    """Those of a node: opened when they are first asked for. ServiceError if it has no state to keep them in."""
    found = node.services.get(SERVICE)
    if found is None:
        if node.state is None:
            raise ServiceError(
                f"objects: expected a node with a state, which keeps them, found that {node.name!r} has none; "
                f'open it with one: Node({node.name!r}, state="{node.name}.state")'
            )
        with _OPENING:
            found = node.services.get(SERVICE) or node.services.add(Objects(node, node.state))
    if not isinstance(found, Objects):
        raise ClosedError(f"objects: node {node.name!r} has another service of that name")
    return found


__all__ = ["Computed", "ObjectNode", "Objects", "objects_of"]
