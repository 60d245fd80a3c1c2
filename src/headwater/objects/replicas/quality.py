"""Services with quality: replicas by a name that their owner has given them, in levels, each with its bound.

    objects.service("positions", "fleet/*", type="Vehicle", levels={"near": {"x": 1.0}, "far": {"x": 100.0}})

Who wants one names the service and a level, and need not know what it is of. The same level of a service is the same
replica, however many have it. Levels are said from the best to the least. A service over a trigger has one trigger for
each level, with that level's values of its parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import ObjectError
from headwater.objects.observers import Observer
from headwater.objects.operations import Administer
from headwater.objects.replicas.spec import Linear, ReplicaSpec, problems, replica_spec
from headwater.spelling import did_you_mean
from headwater.store import Tables

if TYPE_CHECKING:
    from headwater.objects.observers import Errand
    from headwater.objects.reactions import Moment
    from headwater.types import EventType

SERVICES = Tables(
    "services with quality",
    (("CREATE TABLE quality_services (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",),),
)
MOST_SERVICES = 1_000  # of a node
MOST_LEVELS = 32
DECLARE, WITHDRAW = "declare service", "withdraw service"


class QualityService(msgspec.Struct, frozen=True, array_like=True):
    """One of them; levels are in order, the best first, each with the bounds of its members."""

    name: str
    pattern: str
    type: str
    levels: dict[str, dict[str, float]]
    members: tuple[str, ...] = ()
    model: Linear | None = None
    triggers: dict[str, str] = {}  # of one over a trigger: by level, what it is called; the rest says nothing then

    def replica(self, level: str) -> ReplicaSpec:
        """What a level is; ObjectError if there is none of that name."""
        self.must_have(level)
        return ReplicaSpec(self.pattern, self.type, self.levels[level], self.members, self.model)

    def must_have(self, level: str) -> None:
        """ObjectError if there is no level of that name."""
        if level not in self.levels:
            hint = did_you_mean(level, self.levels) or f"there are {', '.join(self.levels)}"
            raise ObjectError(f"service {self.name!r}: expected one of its levels, found {level!r}; {hint}")


_pack = msgspec.msgpack.Encoder().encode
_DECODER = msgpack_decoder(QualityService)


def pack(service: QualityService) -> bytes:
    """As bytes; levels keep their order."""
    return _pack(service)


def unpack(data: bytes) -> QualityService:
    """What was packed; ObjectError if it is none."""
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ObjectError(f"service: expected one in serial form, found something else: {error}") from None


def quality_service(
    name: str,
    pattern: str,
    type: str,
    form: EventType,
    levels: Mapping[str, Mapping[str, float]],
    *,
    node: str,
    members: Iterable[str] = (),
    model: Linear | None = None,
) -> QualityService:
    """One that is sound; ObjectError with all that is wrong with any of its levels."""
    found: list[str] = []
    if not isinstance(name, str) or not name or len(name) > 255:
        found.append(f"name: expected 1 to 255 characters, found {name!r}")
    if not 1 <= len(levels) <= MOST_LEVELS:
        found.append(f"levels: expected 1 to {MOST_LEVELS}, found {len(levels)}")
    specs: dict[str, ReplicaSpec] = {}
    for level, bounds in levels.items():
        try:
            if not isinstance(level, str) or not level or len(level) > 255:
                found.append(f"levels: expected names of 1 to 255 characters, found {level!r}")
            specs[level] = replica_spec(pattern, type, form, node=node, bound=bounds, members=members, model=model)
        except ObjectError as error:
            found += [f"level {level!r}: {line.removeprefix('  - ')}" for line in str(error).splitlines()[1:]]
            if not str(error).startswith("replica of"):
                found.append(f"level {level!r}: {error}")
    for (better, one), (worse, other) in pairwise(specs.items()):
        for member in {*one.bounds, *other.bounds}:
            if one.bounds.get(member, 0.0) > other.bounds.get(member, 0.0):
                found.append(f"levels: {member}: expected bounds that grow, found {better!r} wider than {worse!r}")
    if found:
        raise ObjectError("\n".join([f"service {name!r}:", *(f"  - {each}" for each in found)]))
    first = next(iter(specs.values()))
    return QualityService(
        name, first.pattern, type, {level: each.bounds for level, each in specs.items()}, first.members, model
    )


def check(service: QualityService, form: EventType) -> None:
    """What another node says of itself is looked at as what one says here: ObjectError with all that is wrong."""
    found = [f"level {level!r}: {each}" for level in service.levels for each in problems(service.replica(level), form)]
    if not service.levels or len(service.levels) > MOST_LEVELS:
        found.append(f"levels: expected 1 to {MOST_LEVELS}, found {len(service.levels)}")
    if found:
        raise ObjectError("\n".join([f"service {service.name!r}:", *(f"  - {each}" for each in found)]))


class QualityServices(Observer):
    """Those that a node has declared; they survive it."""

    tables = SERVICES

    def __init__(self) -> None:
        super().__init__()
        self.by_name: dict[str, QualityService] = {}

    @property
    def errands(self) -> Mapping[str, Errand]:
        return {DECLARE: self._declare, WITHDRAW: self._withdraw}

    def open(self, moment: Moment) -> None:
        """Those of lives before."""
        for name, body in moment.execute("SELECT name, body FROM quality_services ORDER BY name"):
            self.by_name[name] = unpack(body)

    def _declare(self, operation: Administer, moment: Moment) -> Any:
        """From now on; who has a level of one that was there keeps what it was."""
        service = unpack(operation.body)
        if service.name not in self.by_name and len(self.by_name) >= MOST_SERVICES:
            raise ObjectError(f"service: expected at most {MOST_SERVICES:,} of a node, found as many")
        moment.execute(
            "INSERT OR REPLACE INTO quality_services (name, body) VALUES (?, ?)", (service.name, operation.body)
        )
        self._put(service.name, service)

    def _withdraw(self, operation: Administer, moment: Moment) -> Any:
        """Nobody gets it any more; who has it keeps what it was."""
        if operation.name not in self.by_name:
            raise ObjectError(f"service {operation.name!r}: expected one that was declared, found none")
        moment.execute("DELETE FROM quality_services WHERE name = ?", (operation.name,))
        self._put(operation.name, None)

    def _put(self, name: str, service: QualityService | None) -> None:
        before = self.by_name.get(name)
        self._set(name, service)
        self.journal.did(lambda: self._set(name, before))

    def _set(self, name: str, service: QualityService | None) -> None:
        """Others read it: it is another one each time."""
        made = {each: found for each, found in self.by_name.items() if each != name}
        if service is not None:
            made[name] = service
        self.by_name = made


def declaring(service: QualityService) -> Administer:
    """The operation that declares a service."""
    return Administer(DECLARE, service.name, pack(service))


def withdrawing(name: str) -> Administer:
    """The operation that takes it back."""
    return Administer(WITHDRAW, name)


__all__ = [
    "MOST_LEVELS",
    "QualityService",
    "QualityServices",
    "check",
    "declaring",
    "pack",
    "quality_service",
    "unpack",
    "withdrawing",
]
