"""Headwater: a distributed, typed event service in which interest travels to the event.

>>> from headwater import Event, Interest, f32
>>> class Sighting(Event):
...     network: str
...     level: f32
>>> loud = Interest("level > 0.5 and network == 'ORL-Net#1'", Sighting)
>>> loud.test(Sighting(network="ORL-Net#1", level=0.7))
True
"""

from headwater.errors import (
    DecodeError,
    EncodeError,
    EvolutionError,
    ExecutionError,
    HeadwaterError,
    InterestError,
    InterestRefused,
    ParameterError,
    Problem,
    SerialError,
    TypeDeclarationError,
)
from headwater.explain import explain
from headwater.interest import Interest, Limits
from headwater.ir.interp import EventMeta, Fault, Outcome, Status
from headwater.ir.params import MapOf, SetOf
from headwater.lang.names import meta
from headwater.lang.pyconst import State
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

__all__ = [
    "Array",
    "DecodeError",
    "EncodeError",
    "Event",
    "EventMeta",
    "EventType",
    "EvolutionError",
    "ExecutionError",
    "Fault",
    "HeadwaterError",
    "Interest",
    "InterestError",
    "InterestRefused",
    "Limits",
    "MapOf",
    "Outcome",
    "ParameterError",
    "Problem",
    "SerialError",
    "SetOf",
    "State",
    "Status",
    "TypeDeclarationError",
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
    "timestamp",
    "u8",
    "u16",
    "u32",
    "u64",
]
