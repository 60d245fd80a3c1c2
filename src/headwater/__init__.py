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
    HeadwaterWarning,
    InterestError,
    InterestRefused,
    LinkDown,
    MissingExtra,
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
from headwater.extras import installed, require
from headwater.federation.node import Node
from headwater.interest import Interest, Limits
from headwater.ir.interp import EventMeta, Fault, Outcome, Status
from headwater.ir.params import MapOf, SetOf
from headwater.lang.names import meta
from headwater.lang.pyconst import State
from headwater.store import NodeState
from headwater.store.log import Log
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
from headwater.version import VERSION as __version__

if TYPE_CHECKING:
    from headwater.channel.replay import replay
    from headwater.federation.gateway import Gateway
    from headwater.federation.log_client import LogClient
    from headwater.federation.network import Budget, Network
    from headwater.federation.rules import Rule
    from headwater.federation.security import Security
    from headwater.store.log.files import LogFiles
    from headwater.store.log.reading import ChannelReader

__all__ = [
    "WAIT",
    "About",
    "Array",
    "AsyncLoop",
    "BestEffort",
    "Budget",
    "Channel",
    "ChannelError",
    "ChannelReader",
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
    "HeadwaterWarning",
    "Inline",
    "Interest",
    "InterestError",
    "InterestRefused",
    "Latency",
    "Limits",
    "LinkDown",
    "Log",
    "LogClient",
    "LogFiles",
    "ManualClock",
    "MapOf",
    "Match",
    "MissingExtra",
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
    "__version__",
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
    "replay",
    "timestamp",
    "u8",
    "u16",
    "u32",
    "u64",
]

# What not every program needs, by the module that has it: imported when it is asked for.
_LATER = {
    "Budget": "headwater.federation.network",
    "ChannelReader": "headwater.store.log.reading",
    "Gateway": "headwater.federation.gateway",
    "LogClient": "headwater.federation.log_client",
    "LogFiles": "headwater.store.log.files",
    "Network": "headwater.federation.network",
    "Rule": "headwater.federation.rules",
    "Security": "headwater.federation.security",
    "replay": "headwater.channel.replay",
}
_FEDERATION = [name for name, module in _LATER.items() if module.startswith("headwater.federation.")]
if not installed("federation"):  # `from headwater import *` gives what there is
    __all__ = [name for name in __all__ if name not in _FEDERATION]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    from importlib import import_module

    if name in _FEDERATION:
        require("federation", name)
    found = globals()[name] = getattr(import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
