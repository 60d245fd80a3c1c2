"""Headwater: a distributed, typed event service in which interest travels to the event.

>>> from headwater import Event, Interest, f32
>>> class Sighting(Event):
...     network: str
...     level: f32
>>> loud = Interest("level > 0.5 and network == 'ORL-Net#1'", Sighting)
>>> loud.test(Sighting(network="ORL-Net#1", level=0.7))
True
"""

from typing import TYPE_CHECKING, Any

from headwater.channel import (
    WAIT,
    About,
    AsyncLoop,
    Channel,
    Config,
    Correlation,
    Counts,
    Deadline,
    Inline,
    Latency,
    ManualClock,
    Match,
    Pool,
    Priority,
    Queue,
    Source,
    Subscription,
    SystemClock,
    Timeout,
    all_of,
    any_of,
    on,
)
from headwater.channel.delivery import BestEffort, Reliable
from headwater.errors import (
    ChannelError,
    ClosedError,
    ConfigError,
    DecodeError,
    EncodeError,
    EvolutionError,
    ExecutionError,
    FactError,
    FederationError,
    FrameError,
    HeadwaterError,
    InterestError,
    InterestRefused,
    LinkDown,
    ParameterError,
    Problem,
    QueueFull,
    SecurityError,
    SerialError,
    ServiceError,
    StoreError,
    SubscriptionError,
    TypeDeclarationError,
    Unreachable,
)
from headwater.explain import explain
from headwater.federation.node import Node
from headwater.interest import Interest, Limits
from headwater.ir.interp import EventMeta, Fault, Outcome, Status
from headwater.ir.params import MapOf, SetOf
from headwater.lang.names import meta
from headwater.lang.pyconst import State
from headwater.store import NodeState
from headwater.types import (
    Array,
    Event,
    EventType,
    event_type,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    timestamp,
    u8,
    u16,
    u32,
    u64,
)
from headwater.types.evolution import plan as evolution

if TYPE_CHECKING:
    from headwater.federation.gateway import Gateway
    from headwater.federation.network import Budget, Network
    from headwater.federation.rules import Rule
    from headwater.federation.security import Security

__all__ = [
    "WAIT",
    "About",
    "Array",
    "AsyncLoop",
    "BestEffort",
    "Budget",
    "Channel",
    "ChannelError",
    "ClosedError",
    "Config",
    "ConfigError",
    "Correlation",
    "Counts",
    "Deadline",
    "DecodeError",
    "EncodeError",
    "Event",
    "EventMeta",
    "EventType",
    "EvolutionError",
    "ExecutionError",
    "FactError",
    "Fault",
    "FederationError",
    "FrameError",
    "Gateway",
    "HeadwaterError",
    "Inline",
    "Interest",
    "InterestError",
    "InterestRefused",
    "Latency",
    "Limits",
    "LinkDown",
    "ManualClock",
    "MapOf",
    "Match",
    "Network",
    "Node",
    "NodeState",
    "Outcome",
    "ParameterError",
    "Pool",
    "Priority",
    "Problem",
    "Queue",
    "QueueFull",
    "Reliable",
    "Rule",
    "Security",
    "SecurityError",
    "SerialError",
    "ServiceError",
    "SetOf",
    "Source",
    "State",
    "Status",
    "StoreError",
    "Subscription",
    "SubscriptionError",
    "SystemClock",
    "Timeout",
    "TypeDeclarationError",
    "Unreachable",
    "all_of",
    "any_of",
    "event_type",
    "evolution",
    "explain",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "meta",
    "on",
    "timestamp",
    "u8",
    "u16",
    "u32",
    "u64",
]

# What only nodes with a network need, and what brings Zenoh and cryptography along: imported when it is asked for.
_LATER = {
    "Budget": "headwater.federation.network",
    "Gateway": "headwater.federation.gateway",
    "Network": "headwater.federation.network",
    "Rule": "headwater.federation.rules",
    "Security": "headwater.federation.security",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
