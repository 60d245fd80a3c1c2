"""Fitting one event type to another by field name.

A target can be filled from a source when each of its fields is there or optional, and each that is there is the same
or wider: every value of the source is exactly a value of the target. The source may have more. A plan is made once
for a pair of types; equal types cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from headwater.errors import EvolutionError
from headwater.types.event_type import event_type
from headwater.types.model import Array, Enum, Field, List, Record, Scalar, Type, canonical, describe

_EXACT = {"f32": 24, "f64": 53}  # bits of an integer that a float holds exactly


@dataclass(frozen=True)
class Step:
    """What happens to one field: `path`, what it `becomes`, and whether that is the `same`."""

    path: str
    becomes: str
    same: bool

    def __str__(self) -> str:
        return f"{self.path}: {self.becomes}"


@dataclass(frozen=True)
class Plan:
    """How records of `source` become records of `target`; make one with `plan(source, target)`."""

    source: Record
    target: Record
    steps: tuple[Step, ...]

    @property
    def identity(self) -> bool:
        """Whether the types are equal, so that records stay as they are."""
        return self.source.fingerprint == self.target.fingerprint

    def convert(self, data: bytes) -> bytes:
        """The record as one of the target; the very same object if the types are equal."""
        return data if self.identity else self._convert(data)

    @cached_property
    def _convert(self) -> Callable[[bytes], bytes]:
        decode, encode = event_type(self.source).decode_raw, event_type(self.target).encode
        project = self._project
        return lambda data: encode(project(decode(data)))

    @cached_property
    def _project(self) -> Callable[[dict[str, Any]], dict[str, Any]]:
        constants: dict[str, Any] = {}
        expression = _mapping(self.source, self.target, "raw", constants)
        namespace = dict(constants)
        exec(f"def run(raw): return {expression}", namespace)
        return namespace["run"]  # type: ignore[no-any-return]

    def convert_batch(self, batch: Any) -> Any:
        """A RecordBatch of the source as one of the target, column by column."""
        found = event_type(self.source).conform(batch)
        return found if self.identity else event_type(self.target).conform(found)

    def explain(self) -> str:
        """What happens to each field, a line each."""
        if self.identity:
            return f"{self.source.name} is {self.target.name}: records stay as they are"
        lines = [f"{self.source.name} becomes {self.target.name}", *(f"  {step}" for step in self.steps)]
        return "\n".join(lines)


@lru_cache(maxsize=4096)
def plan(source: Record, target: Record) -> Plan:
    """The plan from one type to another; an `EvolutionError` lists every field that does not fit."""
    problems: list[str] = []
    steps: list[Step] = []
    if source != target:
        _fit_records(source, target, "", steps, problems)
    if problems:
        raise EvolutionError(f"events of {source.name} cannot become events of {target.name}", problems)
    return Plan(source, target, tuple(steps))


def evolve(source: Any, target: Any) -> Plan:
    """How events of one type become those of another; an `EvolutionError` lists every field that does not fit.

    Each is an Event class, an EventType, a declaration, or an Arrow schema."""
    return plan(event_type(source).record, event_type(target).record)


def _fit_records(source: Record, target: Record, path: str, steps: list[Step], problems: list[str]) -> None:
    for field in target.fields:
        where = f"{path}.{field.name}" if path else field.name
        found = source.by_name.get(field.name)
        if found is None:
            if field.optional:
                steps.append(Step(where, "missing, the source does not have it", False))
            else:
                problems.append(f"{where}: required {describe(field.type)}, but the source does not have it")
        elif found.optional and not field.optional:
            problems.append(f"{where}: required, but optional in the source")
        else:
            _fit(found.type, field.type, where, steps, problems, optional=field.optional and not found.optional)
    for field in source.fields:
        if field.name not in target.by_name:
            steps.append(Step(f"{path}.{field.name}" if path else field.name, "left out", False))


def _fit(
    source: Type, target: Type, path: str, steps: list[Step], problems: list[str], *, optional: bool = False
) -> None:
    """A step, or a problem, for a pair of types at a path."""
    now_optional = ", now optional" if optional else ""
    if canonical(source) == canonical(target):
        steps.append(Step(path, f"{target} as it is{now_optional}", not optional))
        return
    match source, target:
        case Scalar(), Scalar() if _widens(source, target):
            steps.append(Step(path, f"{source} widened to {target}{now_optional}", False))
        case Enum(), Enum():
            known = dict(target.members)
            for name, _ in source.members:
                if name not in known:
                    problems.append(f"{path}: member {name} of {source.name} is not in {target.name}")
            steps.append(Step(path, f"{source.name} as {target.name}, by member name{now_optional}", False))
        case (Array(), Array()) if source.shape != target.shape:
            problems.append(f"{path}: expected {describe(target)}, found {describe(source)}, of another shape")
        case (Array(element=inner), Array(element=wanted)) | (List(element=inner), List(element=wanted)):
            _fit(inner, wanted, f"{path}[]", steps, problems)
            if optional:
                steps.append(Step(path, "now optional", False))
        case Record(), Record():
            _fit_records(source, target, path, steps, problems)
            if optional:
                steps.append(Step(path, "now optional", False))
        case _:
            hint = "; this loses values" if _narrows(source, target) else ""
            problems.append(f"{path}: expected {describe(target)}, found {describe(source)}{hint}")


def _widens(source: Scalar, target: Scalar) -> bool:
    """Whether every value of `source` is exactly a value of `target`."""
    if source.name in ("bool", "text", "bytes", "timestamp") or target.name in (
        "bool",
        "text",
        "bytes",
        "timestamp",
    ):
        return False
    if target.is_float:
        if source.is_float:
            return source.bits <= target.bits
        return source.bits <= _EXACT[target.name]
    if source.is_float:
        return False
    low, high = source.range
    least, greatest = target.range
    return least <= low and high <= greatest


def _narrows(source: Type, target: Type) -> bool:
    numbers = isinstance(source, Scalar) and isinstance(target, Scalar)
    return numbers and source.name[0] in "iuf" and target.name[0] in "iuf"  # type: ignore[union-attr]


def _mapping(source: Type, target: Type, value: str, constants: dict[str, Any]) -> str:
    """The Python expression that makes the raw form of `target` from that of `source` in variable `value`."""
    if canonical(source) == canonical(target):
        return value
    match source, target:
        case Record(), Record():
            items = [
                f"{_constant(constants, f.name)}: {_field(source.by_name.get(f.name), f, value, constants)}"
                for f in target.fields
            ]
            return "{" + ", ".join(items) + "}"
        case Enum(), Enum():
            codes = dict(target.members)
            table = _constant(constants, {code: codes[name] for name, code in source.members})
            return f"{table}[{value}]"
        case (Array(element=inner), Array(element=wanted)) | (List(element=inner), List(element=wanted)):
            dimensions = len(source.shape) if isinstance(source, Array) else 1
            return _nested(inner, wanted, value, dimensions, constants)
        case Scalar(), Scalar() if target.is_float and not source.is_float:
            return f"float({value})"
        case _:
            return value


def _nested(source: Type, target: Type, value: str, dimensions: int, constants: dict[str, Any]) -> str:
    each = f"e{len(constants)}_{dimensions}"
    constants[f"_{each}"] = None  # makes the next variable's name a new one
    if dimensions > 1:
        inner = _nested(source, target, each, dimensions - 1, constants)
    else:
        inner = _mapping(source, target, each, constants)
    return value if inner == each else f"tuple([{inner} for {each} in {value}])"


def _field(source: Field | None, target: Field, value: str, constants: dict[str, Any]) -> str:
    if source is None:
        return "None"
    item = f"{value}[{_constant(constants, source.name)}]"
    made = _mapping(source.type, target.type, item, constants)
    return f"(None if {item} is None else {made})" if source.optional and made != item else made


def _constant(constants: dict[str, Any], value: Any) -> str:
    name = f"K{len(constants)}"
    constants[name] = value
    return name
