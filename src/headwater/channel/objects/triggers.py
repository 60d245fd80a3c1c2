"""Triggers as programs write them: `node.objects.trigger(...)`.

    alert = objects.trigger(
        "alert", on="stock/acme", when="becomes", where="new.price < :limit", params={"limit": 90.0},
        do=lambda t: t.update("desk", {"alerts": Computed("alerts + 1")}), notify={"price": "new.price"})
    alert.subscribe(print)
    alert.change(params={"limit": 80.0})

In an action, `t.new`, `t.old`, `t.last`, `t.event` and `t["input"]` stand for what the condition saw; `{object}` in a
name is the event's object, and `{name}` its last segment.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import HeadwaterWarning, ObjectError
from headwater.objects.builder import Computed, TransactionBuilder
from headwater.objects.operations import Administer, AnyOperation, Outcome, Read, Transaction
from headwater.objects.triggers import definition, description
from headwater.objects.triggers.administration import changing, installing, removing
from headwater.objects.triggers.definition import Input, When
from headwater.objects.triggers.distributed import Scheme
from headwater.objects.triggers.history import History
from headwater.objects.zones.distribution import Spread, owners_of, spread
from headwater.objects.zones.homes import CERTAINTY, certainty_channel

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.objects.outlets import ChannelOutlets
    from headwater.channel.objects.spreading import Spreading
    from headwater.channel.subscription import Subscription
    from headwater.objects.engine import ObjectEngine
    from headwater.objects.reactions import Coupling, OnFailure
    from headwater.objects.zones.home import Home
    from headwater.objects.zones.homes import Homes
    from headwater.types import EventType

Does = Transaction | TransactionBuilder | Sequence[AnyOperation] | Callable[["ActionBuilder"], object]


class ActionBuilder(TransactionBuilder):
    """The operations of an action; names may have `{object}` and `{name}` in them."""

    @property
    def new(self) -> Computed:
        """The event's object, as it is."""
        return Computed("new")

    @property
    def old(self) -> Computed:
        """The event's object, as it was."""
        return Computed("old")

    @property
    def last(self) -> Computed:
        """The event's object, as it was when the trigger last fired."""
        return Computed("last")

    @property
    def event(self) -> Computed:
        """What has happened: `object`, `op`, `time` and `turn`."""
        return Computed("event")

    def __getitem__(self, name: str) -> Computed:
        """An input or a history of the trigger."""
        return Computed(name)

    def _name(self, name: str) -> str:
        return name if "{" in name else super()._name(name)

    def read(self, name: str, as_: str | None = None) -> Computed:
        """The value of an object or member, for later operations."""
        if "{" not in name:
            return super().read(name, as_)
        if as_ is None:
            raise ObjectError(f"read {name!r}: expected a name for what is read, as_=, found none")
        self._operations.append(Read(name, as_))
        return Computed(as_)


class TriggerNode(Protocol):
    """As much of a node as is needed here."""

    name: str

    def _spreading(self) -> Spreading | None:
        """Who carries what triggers over several nodes say."""
        ...

    def channel(self, name: str, type: Any = None) -> Channel[Any]:
        """The channel of that name."""
        ...

    def _by_name(self, where: str) -> Any:
        """The entry of a library."""
        ...


class Trigger:
    """An installed trigger. It lives on when this is gone, and when the node is: `remove` ends it."""

    def __init__(self, triggers: HasTriggers, name: str) -> None:
        self._triggers, self.name = triggers, name

    @property
    def channel(self) -> Channel[Any]:
        """Of its notifications, which are events like any others; ObjectError if it notifies nobody."""
        found = self._triggers.engine.triggers.found(self.name)
        if found.notification is None:
            raise ObjectError(f"trigger {self.name!r}: expected one that notifies, found none; install it with notify=")
        node: TriggerNode = self._triggers._node
        name, type = self._triggers.engine.triggers.channel(found), found.notification.type
        self._triggers._outlets.ready(name, type)  # first: a durable sink is to find its source, and what it missed
        return node.channel(name, type)

    def subscribe(self, handler: Any = None, where: Any = None, **options: Any) -> Subscription[Any]:
        """Its notifications, as of any channel: to a handler, by `async for`, by `get`, or durably (a `delivery` that
        is). A handler that waits or fails disturbs neither turns nor others: it has a thread of the pool, unless
        `dispatch` says otherwise."""
        if callable(handler) and not inspect.iscoroutinefunction(handler):
            options.setdefault("dispatch", "pool")
        return self.channel.subscribe(handler, where, **options)

    def change(
        self, *, params: Mapping[str, Any] | None = None, enabled: bool | None = None, priority: int | None = None
    ) -> Outcome:
        """From the next turn on, its parameters are others, or it is enabled or not; its condition begins anew. The
        outcome says in which turn that was."""
        return self._triggers._run(changing(self.name, params=params, enabled=enabled, priority=priority))

    def enable(self) -> Outcome:
        """Have it judged again."""
        return self.change(enabled=True)

    def disable(self) -> Outcome:
        """Have it judged no more, until it is enabled; histories go on."""
        return self.change(enabled=False)

    def remove(self) -> Outcome:
        """It is no more, nor is what it remembers."""
        return self._triggers._run(removing(self.name))

    def explain(self) -> str:
        """What it listens to, what decides it, what comes of it, and how it went, in words."""
        found, home = self._triggers.engine.triggers.found(self.name), self._home
        triggers = self._triggers.engine.triggers
        told = description.explain(found, triggers.channel(found), triggers)
        return told if home is None else f"{told}\n{home.explain()}"

    def report(self) -> dict[str, Any]:
        """How often it was evaluated, has fired, vetoed and failed since the node was started; over several nodes,
        also what it has cost and what is known, times being microseconds since 1970."""
        found, home = description.report(self._triggers.engine.triggers.found(self.name)), self._home
        return found if home is None else {**found, **home.report()}

    # ── of those over several nodes ──

    @property
    def _home(self) -> Home | None:
        return self._triggers.homes.named(self.name)

    @property
    def holds(self) -> bool | None:
        """Over several nodes: whether its condition holds, at the last time that is decided; None: it is not known."""
        home = self._home
        return None if home is None else home.coordinator.holds

    @property
    def unknown_since(self) -> int | None:
        """Over several nodes: since when nothing is known, if that is so; microseconds since 1970, by the owners'
        clocks."""
        home = self._home
        found = None if home is None else home.coordinator.unknown_since
        return None if found is None else found // 1000

    @property
    def certainty(self) -> Channel[Any]:
        """Over several nodes: the channel on which is told when nothing is known any more (`known` is false, `why`
        says of whom nothing is heard), and when all is again."""
        if self._triggers.engine.triggers.found(self.name).trigger.distributed is None:
            raise ObjectError(f"trigger {self.name!r}: expected one over several nodes, found one of this node alone")
        return self._triggers._node.channel(certainty_channel(self._triggers._node.name, self.name), CERTAINTY)

    def __repr__(self) -> str:
        return f"<Trigger {self.name} of {self._triggers._node.name}>"


def operations(node: str, do: Does) -> Transaction | Sequence[AnyOperation]:
    """The operations of an action, also where a function builds them."""
    if callable(do):
        builder = ActionBuilder(node)
        do(builder)
        do = builder
    return do.build() if isinstance(do, TransactionBuilder) else do


class HasTriggers:
    """What `node.objects` has of triggers."""

    _node: TriggerNode
    _outlets: ChannelOutlets
    engine: ObjectEngine
    _named_triggers: dict[str, Any]  # since the node was started: which entry of a library each is that was had by name
    homes: Homes

    def trigger(
        self,
        name: str,
        named: str | None = None,
        *,
        on: str | Sequence[str] = (),
        when: When = "each",
        where: str = "",
        type: str = "",
        inputs: Mapping[str, str | tuple[str, str] | Input] | None = None,
        history: Mapping[str, History] | None = None,
        do: Does = (),
        notify: bool | str | Sequence[str] | Mapping[str, str] = False,
        veto: str = "",
        priority: int = 0,
        group: str = "",
        coupling: Coupling = "after",
        on_failure: OnFailure = "report",
        params: Mapping[str, Any] | None = None,
        enabled: bool = True,
        scheme: Scheme = "zones",
    ) -> Trigger:
        """Install a trigger, for good; an equal one that is there already is that one, whatever its name.

        It listens to events (`on`: names, patterns of names, `created …`, `unchanged 60 s …`, `every 10 s`,
        `channel …`); at `each` at which its condition holds, or when that `becomes` true, it fires: the operations of
        `do` are a transaction, and `notify` says what subscribers are told. All that is wrong is told at once.

        With inputs of other nodes it is a trigger over several nodes, whose home is this one: `on` is left out, or
        names the inputs; `scheme` says how it is decided: by safe "zones", or "simple", so that all changes cross.

        `named` is one of a library, `@low-stock/2`: with values of its parameters, and nothing of the rest."""
        if named is not None:
            rest = {"on": on, "where": where, "type": type, "inputs": inputs, "history": history, "do": do,
                    "notify": notify, "veto": veto}  # fmt: skip
            return self._from_library(name, named, [each for each in rest if rest[each]], params, enabled)
        given: dict[str, Any] = {
            "on": on,
            "when": when,
            "where": where,
            "type": type,
            "inputs": inputs,
            "history": history,
            "do": operations(self._node.name, do),
            "notify": notify,
            "veto": veto,
            "priority": priority,
            "group": group,
            "coupling": coupling,
            "on_failure": on_failure,
            "params": params,
            "enabled": enabled,
            "node": self._node.name,
        }
        more: tuple[str, ...] = ()
        if owners_of(on, inputs, self._node.name) <= {self._node.name}:
            made = definition.trigger(name, **given)
        else:
            made, _, more = self._spread(name, given, scheme)
        return self._install(made, more)

    def _from_library(
        self, name: str, named: str, also: list[str], params: Mapping[str, Any] | None, enabled: bool
    ) -> Trigger:
        if also:
            raise ObjectError(
                f"trigger {name!r}: expected params= beside {named}, which says the rest, found {also[0]}="
            )
        entry = self._node._by_name(named)
        made = self._install(entry.trigger().made(name, self._node.name, params, enabled=enabled))
        self._named_triggers[made.name] = entry.origin
        return made

    def _install(self, made: definition.Trigger, more: tuple[str, ...] = ()) -> Trigger:
        said = self._run(installing(made)).results["installed"]
        for warning in (*said["warnings"], *more):
            warnings.warn(f"trigger {made.name!r}: {warning}", HeadwaterWarning, stacklevel=3)
        self._announce(said["name"])
        return Trigger(self, said["name"])

    def explain_trigger(self, name: str, *, on: str | Sequence[str], when: When, do: Does = (), **more: Any) -> str:
        """What `trigger` with the same would install, in words: what decides it, what it costs and remembers, what
        comes of it, and whether it may set itself off. Nothing is installed; all that is wrong is told at once."""
        if callable(do):
            builder = ActionBuilder(self._node.name)
            do(builder)
            do = builder
        built = do.build() if isinstance(do, TransactionBuilder) else do
        return self.engine.explain_trigger(
            definition.trigger(name, on=on, when=when, do=built, node=self._node.name, **more)
        )

    def map_channel(
        self,
        channel: str | Channel[Any],
        to: str,
        *,
        type: str,
        set: Mapping[str, str] | None = None,
        where: str = "",
        event: bool = True,
        name: str = "",
        params: Mapping[str, Any] | None = None,
    ) -> Trigger:
        """Have objects follow the events of a channel: each event puts its values into the object `to`, which is made
        where there is none. Braces in its name are fields of the event: `stock/{new.symbol}`. `set` says members and
        what they become, over `new`, the event; unless said, all fields that both have. With an `event`, or silently.

        It is a trigger, by the name of `name` or of the channel, and is removed as one."""
        found = self._node.channel(channel) if isinstance(channel, str) else channel
        if set is None:
            own = {each.name for each in self.engine.types.named(type).type.record.fields}
            fields = () if found.type is None else found.type.record.fields
            set = {each.name: f"new.{each.name}" for each in fields if each.name in own}
        if not set:
            raise ObjectError(
                f"map_channel {found.name!r}: expected fields that its events and type {type!r} both have, found none; "
                'say what members become: set={"price": "new.last_price"}'
            )
        put = {member: Computed(text) for member, text in set.items()}
        return self.trigger(
            name or f"{found.name}-to-{type}".replace(".", "-"),
            on=f"channel {found.name}",
            when="each",
            where=where,
            do=lambda t: t.put(to, type, put, event=event),
            params=params,
        )

    def _spread(self, name: str, given: dict[str, Any], scheme: Scheme) -> Spread:
        """A trigger with inputs of other nodes."""
        spreading = self._node._spreading()
        if spreading is None:
            others = sorted(owners_of(given["on"], given["inputs"], self._node.name) - {self._node.name})
            raise ObjectError(
                f"trigger {name!r}: expected objects of this node, which has no network, found some of "
                f"{', '.join(others)}"
            )

        def type_of(node: str, object: str, named: str) -> tuple[str, EventType]:
            if named in self.engine.types:
                return named, self.engine.types[named].type
            if node != self._node.name:
                return spreading.type_of(node, object, named)
            kept = None if named else self.engine.get(object)
            if kept is None:
                raise ObjectError(
                    f"trigger {name!r}: inputs: //{node}/{object}: expected an object that exists, or a type that is "
                    f"declared: (name, type), found {named or 'neither'}"
                )
            return kept.type, self.engine.types[kept.type].type

        found = self.engine.triggers.registry.by_name.get(name)
        return spread(
            name,
            type_of=type_of,
            scheme=scheme,
            before=None if found is None else found.trigger,
            away=lambda node: node != self._node.name and not spreading.is_there(node),
            **given,
        )

    def _announce(self, name: str) -> None:
        """Its notifications, if it has any, can be asked for from now on."""
        triggers = self.engine.triggers
        found = triggers.registry.by_name.get(name)
        if found is not None and found.notification is not None:
            self._open(triggers.channel(found), found.notification.type)
        if found is not None and found.trigger.distributed is not None:
            self._open(certainty_channel(self._node.name, name), CERTAINTY)

    def _open(self, channel: str, type: EventType) -> None:
        """Now: who asks for what leaves there, and is ready then, must find its source."""
        self._outlets.ready(channel, type)
        self.engine.announce(channel, type)

    @property
    def triggers(self) -> dict[str, Trigger]:
        """All triggers, by name."""
        return {each.name: Trigger(self, each.name) for each in self.engine.triggers.registry}

    def enable(self, group: str) -> Outcome:
        """All triggers of a group, at one point between two turns."""
        return self._run(Administer("enable group", group))

    def disable(self, group: str) -> Outcome:
        """All triggers of a group, at one point between two turns."""
        return self._run(Administer("disable group", group))

    def _run(self, operation: Administer) -> Outcome:
        found: Outcome = self.engine.submit(Transaction((operation,)), waits=True, here=True).wait()
        return found.check()


__all__ = ["ActionBuilder", "HasTriggers", "Trigger", "operations"]
