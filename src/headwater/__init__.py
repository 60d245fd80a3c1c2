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

from headwater.extras import installed, require
from headwater.version import VERSION as __version__

if TYPE_CHECKING:
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
    from headwater.channel.options.delivery import (
        BestEffort,
        Reliable,
    )
    from headwater.channel.replay import (
        replay,
    )
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
    from headwater.explanation import (
        explain,
    )
    from headwater.federation.gateway.gateway import (
        Gateway,
    )
    from headwater.federation.logs.client import (
        LogClient,
    )
    from headwater.federation.network import (
        Budget,
        Network,
    )
    from headwater.federation.node import (
        Node,
    )
    from headwater.federation.security.rules import (
        Rule,
    )
    from headwater.federation.security.settings import (
        Security,
    )
    from headwater.interest import (
        Interest,
        Limits,
    )
    from headwater.ir.interp import (
        EventMeta,
        Fault,
        Outcome,
        Status,
    )
    from headwater.ir.params import (
        MapOf,
        SetOf,
    )
    from headwater.lang.names import (
        meta,
    )
    from headwater.lang.pyconst import (
        State,
    )
    from headwater.store import (
        NodeState,
    )
    from headwater.store.log import (
        Log,
    )
    from headwater.store.log.log_folder import (
        LogFiles,
    )
    from headwater.store.log.reader import (
        ChannelReader,
    )
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
    from headwater.types.evolution import (
        plan as evolution,
    )

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

# Where each name is from: imported when it is first asked for. `import headwater` itself loads nothing.
_MODULES = {
    "headwater.channel": (
        "WAIT About AsyncLoop Channel Config Correlation Counts Deadline Inline Latency ManualClock Match "
        "Pool Priority Queue Source Subscription SystemClock Timeout all_of any_of on"
    ),
    "headwater.channel.options.delivery": "BestEffort Reliable",
    "headwater.channel.replay": "replay",
    "headwater.errors": (
        "ChannelError ClosedError ConfigError DecodeError EncodeError EvolutionError ExecutionError FactError "
        "FederationError FrameError HeadwaterError HeadwaterWarning InterestError InterestRefused LinkDown "
        "MissingExtra ParameterError Problem QueueFull SecurityError SerialError ServiceError StoreError "
        "SubscriptionError TypeDeclarationError Unreachable"
    ),
    "headwater.explanation": "explain",
    "headwater.federation.gateway.gateway": "Gateway",
    "headwater.federation.logs.client": "LogClient",
    "headwater.federation.network": "Budget Network",
    "headwater.federation.node": "Node",
    "headwater.federation.security.rules": "Rule",
    "headwater.federation.security.settings": "Security",
    "headwater.interest": "Interest Limits",
    "headwater.ir.interp": "EventMeta Fault Outcome Status",
    "headwater.ir.params": "MapOf SetOf",
    "headwater.lang.names": "meta",
    "headwater.lang.pyconst": "State",
    "headwater.store": "NodeState",
    "headwater.store.log": "Log",
    "headwater.store.log.log_folder": "LogFiles",
    "headwater.store.log.reader": "ChannelReader",
    "headwater.types": "Array Event EventType event_type f32 f64 i8 i16 i32 i64 timestamp u8 u16 u32 u64",
    "headwater.types.evolution": "evolution",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
_OTHERWISE = {"evolution": "plan"}  # names that are others where they are from
_FEDERATED = ("Budget", "Gateway", "LogClient", "Network", "Rule", "Security")  # which need that extra
if not installed("federation"):  # `from headwater import *` gives what there is
    __all__ = [name for name in __all__ if name not in _FEDERATED]


def _home_of(name: str) -> Any:
    """What a name stands for: one of the above, or a package or module of Headwater, as `headwater.types`."""
    from importlib import import_module
    from importlib.util import find_spec

    if name not in _HOMES:
        if name.startswith("_") or find_spec(f"headwater.{name}") is None:
            raise AttributeError(f"module 'headwater' has no attribute {name!r}")
        return import_module(f"headwater.{name}")
    if name in _FEDERATED:
        require("federation", name)
    found = globals()[name] = getattr(import_module(_HOMES[name]), _OTHERWISE.get(name, name))
    return found


if not TYPE_CHECKING:  # to a type checker a name that is not above is an error
    __getattr__ = _home_of


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
