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
from headwater.python_versions import check as _check
from headwater.version import VERSION as __version__

_check()

if TYPE_CHECKING:
    from headwater.channel import About, Channel, Config, Queue, Source, Subscription
    from headwater.channel.options.delivery import BestEffort, Reliable
    from headwater.channel.options.pattern_limits import Patterns
    from headwater.channel.options.rate import Rate
    from headwater.errors import HeadwaterError, HeadwaterWarning
    from headwater.explanation import explain
    from headwater.federation.network import Network
    from headwater.federation.node import Node
    from headwater.interest import Interest, State
    from headwater.store.log.settings import Log
    from headwater.types import Array, Event, event_type, f32, f64, i8, i16, i32, i64, timestamp, u8, u16, u32, u64

__all__ = [
    "About",
    "Array",
    "BestEffort",
    "Channel",
    "Config",
    "Event",
    "HeadwaterError",
    "HeadwaterWarning",
    "Interest",
    "Log",
    "Network",
    "Node",
    "Patterns",
    "Queue",
    "Rate",
    "Reliable",
    "Source",
    "State",
    "Subscription",
    "__version__",
    "event_type",
    "explain",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "timestamp",
    "u8",
    "u16",
    "u32",
    "u64",
]

# Where each name is from: imported when it is first asked for. `import headwater` itself loads nothing.
_MODULES = {
    "headwater.channel": "About Channel Config Queue Source Subscription",
    "headwater.channel.options.delivery": "BestEffort Reliable",
    "headwater.channel.options.pattern_limits": "Patterns",
    "headwater.channel.options.rate": "Rate",
    "headwater.errors": "HeadwaterError HeadwaterWarning",
    "headwater.explanation": "explain",
    "headwater.federation.network": "Network",
    "headwater.federation.node": "Node",
    "headwater.interest": "Interest State",
    "headwater.store.log.settings": "Log",
    "headwater.types": "Array Event event_type f32 f64 i8 i16 i32 i64 timestamp u8 u16 u32 u64",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
_FEDERATED = ("Network",)  # which need that extra
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
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


if not TYPE_CHECKING:  # to a type checker a name that is not above is an error
    __getattr__ = _home_of


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
