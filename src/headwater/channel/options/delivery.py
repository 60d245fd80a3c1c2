"""How surely events reach a subscription, as values: `Reliable()`, the default, or `BestEffort()`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from headwater.channel.options.settings import Choice, Name, near, quoted, show
from headwater.errors import ConfigError, ConfigProblem, SubscriptionError

Acknowledge = Literal["return", "manual"]
Order = Literal["receive", "timestamp", "total"]
ORDERS: tuple[Order, ...] = get_args(Order)
ALL = -1  # a history without a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliable:
    """Every event, in the order of its source, none twice, through broken connections and restarts of its source's
    node.

    With `durable`, through restarts of the subscriber's own node as well: how far it is with each source is kept in the
    node's state (`Node(state=path)`) under the subscription's name, so both are needed. An event counts as done when
    its handler has returned, or, with `acknowledge="manual"`, once it or a later one of its source is acknowledged
    (`about.acknowledge()`). What was not done when the process was killed comes again: at most the event that the
    handler had (`about.redelivered`), or those not yet acknowledged.

    `within` is a connection of `sqlite3`, which then holds the position instead (table `headwater_positions`), in one
    transaction with whatever the handler writes on it: nothing comes again. It begins before the handler is called, is
    committed when it has returned and rolled back if it raised. The connection is for this subscription alone, and used
    in the handler's thread: open it with `check_same_thread=False`.
    """

    name: ClassVar[str] = "reliable"

    durable: bool = False
    acknowledge: Acknowledge = "return"
    within: Any = None

    def __post_init__(self) -> None:
        problems = [Choice(*get_args(Acknowledge)).problem("Reliable: acknowledge", self.acknowledge)]
        if not isinstance(self.durable, bool):
            problems.append(ConfigProblem("Reliable: durable", "true or false", show(self.durable)))
        missing = [part for part in ("cursor", "execute", "in_transaction") if not _has(self.within, part)]
        if self.within is not None and missing:
            found = f"{show(self.within)}, which has no {', '.join(missing)}"
            problems.append(ConfigProblem("Reliable: within", "a connection of sqlite3, or None", found))
        if self.acknowledge == "manual":
            if self.within is not None:
                hint = "the transaction ends when the handler returns: remove acknowledge="
                problems.append(ConfigProblem("Reliable: acknowledge", '"return" with within=', '"manual"', hint))
            elif self.durable is False:
                hint = "what was not acknowledged can only come again if that is kept: add durable=True"
                problems.append(ConfigProblem("Reliable: acknowledge", '"return" without durable=', '"manual"', hint))
        if found_problems := [problem for problem in problems if problem is not None]:
            raise ConfigError(found_problems)
        if self.within is not None:
            object.__setattr__(self, "durable", True)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestEffort:
    """What arrives is delivered, in the order of its source; what is lost on the way is not sent again."""

    name: ClassVar[str] = "best_effort"

    durable: ClassVar[bool] = False


Delivery = Reliable | BestEffort
DELIVERIES: Mapping[str, type[Delivery]] = {cls.name: cls for cls in (Reliable, BestEffort)}


_DURABLE = "for delivery through restarts write Reliable(durable=True), with name= and Node(state=...)"
_ELSEWHERE = {  # what others call a delivery
    **dict.fromkeys(("durable", "persistent"), _DURABLE),
    **dict.fromkeys(("at_least_once", "at-least-once", "exactly_once", "exactly-once"), f'"reliable" does; {_DURABLE}'),
    **dict.fromkeys(("at_most_once", "at-most-once", "unreliable", "best-effort"), 'write "best_effort"'),
}


def _has(value: object, part: str) -> bool:
    try:
        return hasattr(value, part)
    except Exception:  # a property that raises, as of a connection that is closed
        return True


# ── options of a subscription, at the door ──


def check_delivery(given: Delivery | str | None, handler: Any) -> Delivery:
    """The delivery that is meant."""
    if given is None:
        return Reliable()
    if isinstance(given, str):
        if given not in DELIVERIES:
            hint = _ELSEWHERE.get(given) or near(given, DELIVERIES)
            raise SubscriptionError(
                f"delivery: expected one of {quoted(DELIVERIES)}, found {show(given)}{f'; {hint}' if hint else ''}"
            )
        return DELIVERIES[given]()
    if not isinstance(given, Delivery):
        hint = "; an instance of it: add ()" if isinstance(given, type) else ""
        raise SubscriptionError(f"delivery: expected Reliable(...) or BestEffort(), found {show(given)}{hint}")
    if isinstance(given, Reliable) and given.within is not None and handler is None:
        raise SubscriptionError(
            "delivery: within= is the transaction of a handler, and there is none; "
            "give a handler, or keep the position in the node's state: Reliable(durable=True)"
        )
    return given


def check_order(given: Order | None) -> Order:
    """The order in which events of several sources are delivered."""
    if given is None:
        return "receive"
    if not isinstance(given, str) or given not in ORDERS:
        hint = near(given, ORDERS)
        raise SubscriptionError(
            f"order: expected one of {quoted(ORDERS)}, found {show(given)}{f'; {hint}' if hint else ''}"
        )
    return given


def check_zones(given: str | Iterable[str] | None) -> frozenset[str] | None:
    """The names of the zones that were given; None where none was."""
    if given is None:
        return None
    if isinstance(given, (bytes, bytearray)) or not isinstance(given, Iterable):
        raise SubscriptionError(f"zones: expected the name of a zone, or several, found {show(given)}")
    names = [given] if isinstance(given, str) else list(given)
    if not names:
        raise SubscriptionError("zones: expected the name of a zone, or several, found none; leave it out for all")
    for name in names:
        if (problem := Name().problem("zones", name)) is not None:
            raise SubscriptionError(str(problem))
    return frozenset(names)


def check_history(given: int | str | None) -> int:
    """How many past events are wanted to begin with; ALL for as many as there are."""
    if given is None:
        return 0
    if isinstance(given, str) and given == "all":
        return ALL
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise SubscriptionError(f'history: expected a number of events, or "all", found {show(given)}')
    return given


def check_keeping(delivery: Delivery, name: str | None, state: Any) -> None:
    """Whether a durable subscription has a name to keep its position under, and a place to keep it."""
    if not delivery.durable:
        return
    if name is None:
        raise SubscriptionError(
            "delivery: a durable subscription is found again by its name, and this one has none; add name="
        )
    if state is None and getattr(delivery, "within", None) is None:
        raise SubscriptionError(
            f"delivery: expected a node with state for durable subscription {name!r}, found one without; "
            "give the node a file, Node(state='lab.state'), or the subscription a connection, Reliable(within=...)"
        )


__all__ = [
    "ALL",
    "Acknowledge",
    "BestEffort",
    "Delivery",
    "Order",
    "Reliable",
    "check_delivery",
    "check_history",
    "check_keeping",
    "check_order",
    "check_zones",
]
