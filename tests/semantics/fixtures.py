"""Reads the cases of the `*.toml` files beside this one."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater import Interest
from headwater.interest import as_event_type
from headwater.ir.cost import Limits
from headwater.ir.interp import FUEL, EventContext, Fault, Status
from headwater.ir.operators import micros_of
from headwater.types.model import Array, List, Record, Scalar, Type


@dataclass(frozen=True)
class Example:
    value: dict[str, Any]
    status: Status
    faults: Fault
    meta: EventContext | None
    output: dict[str, Any] | None


@dataclass(frozen=True)
class Case:
    id: str
    notation: str
    definition: str
    type: str
    output: str | None
    params: dict[str, Any]
    events: tuple[Example, ...]
    fuel: int

    def interest(self) -> Interest:
        """The same for all: it has no state of its own."""
        return self._interest

    @cached_property
    def _interest(self) -> Interest:
        return Interest(
            self.definition,
            self.type,
            output=self.output,
            params=self.params,
            notation=self.notation,  # type: ignore[arg-type]
            limits=Limits(fuel=self.fuel),
        )

    def meta_columns(self) -> dict[str, Any]:
        """Columns of what the service knows, where the case gives any."""
        if all(event.meta is None for event in self.events):
            return {}
        return meta_arrays([event.meta or EventContext() for event in self.events])


def meta_arrays(metas: list[EventContext]) -> dict[str, Any]:
    """What the service knows of the events of a batch, as columns."""
    types = {"source": pa.utf8(), "node": pa.utf8(), "seq": pa.int64(), "time": pa.timestamp("us", "UTC")}
    return {name: pa.array([getattr(meta, name) for meta in metas], type) for name, type in types.items()}


def cases() -> list[Case]:
    """One for each case, notation and way of saying it."""
    found: list[Case] = []
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]:
            events = tuple(_example(event, case) for event in case["events"])
            params = {k: frozenset(v) if isinstance(v, list) else v for k, v in case.get("params", {}).items()}
            for notation in ("predicate", "ecode", "python"):
                said = case.get(notation, [])
                for i, text in enumerate([said] if isinstance(said, str) else said):
                    name = f"{path.stem}-{case['name']}-{notation}{i or ''}".replace(" ", "_")
                    fuel = case.get("fuel", FUEL)  # a case that is to run out of it may have less
                    found.append(Case(name, notation, text, case["type"], case.get("output"), params, events, fuel))
    return found


def _example(event: dict[str, Any], case: dict[str, Any]) -> Example:
    faults = Fault.NONE
    for name in event.get("faults", []):
        faults |= Fault[name.upper()]
    meta = event.get("meta")
    if meta is not None:
        meta = EventContext(**{k: micros_of(v) if isinstance(v, datetime) else v for k, v in meta.items()})
    value = _complete(event["in"], as_event_type(case["type"]).record)
    output = _complete(event["out"], as_event_type(case["output"]).record) if "out" in event else None
    return Example(value, Status[event["is"].upper()], faults, meta, output)


def _complete(value: Any, type: Type) -> Any:
    """What TOML cannot say: absent optional fields, bytes, integers beyond 63 bits (written as text)."""
    match type:
        case Record(fields=fields):
            return {f.name: None if f.name not in value else _complete(value[f.name], f.type) for f in fields}
        case List(element=element):
            return [_complete(item, element) for item in value]
        case Array(element=element, shape=shape):
            inner = Array(element, shape[1:]) if len(shape) > 1 else element
            return [_complete(item, inner) for item in value]
        case Scalar(name="bytes"):
            return value.encode()
        case Scalar() if type.is_integer and isinstance(value, str):
            return int(value)
    return value


def equal(a: Any, b: Any) -> bool:
    """Equal bit for bit: NaN is NaN, 0.0 is not -0.0; lists and tuples alike."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return type(a) is type(b) and bool(a == b)
