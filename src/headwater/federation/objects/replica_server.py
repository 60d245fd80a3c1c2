"""The owner's side of replicas that other nodes hold: they are told what leaves its bounds, once for all that hold the
same.

Who holds one must be allowed to `subscribe` to the changes of the type of its objects, `objects.TYPE`, and to what is
told, `objects.TYPE.replicas`; a rule for `objects.TYPE.**` is for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import ObjectError
from headwater.federation.objects.turns import run
from headwater.federation.security.policy import Allow
from headwater.federation.wire.object_requests import (
    MOST_OBJECTS,
    PAGE_BYTES,
    HoldReplica,
    ReadReplica,
    ReleaseReplica,
    ReplicaIs,
    ReplicaPage,
    ServicesAre,
    TellServices,
    ToldRow,
)
from headwater.federation.wire.requests import Accepted, pack_type
from headwater.objects.object_types import CHANNEL
from headwater.objects.replicas import quality
from headwater.objects.replicas import spec as specs
from headwater.objects.replicas.owner import TOOK, holding, releasing

if TYPE_CHECKING:
    from headwater.channel.objects.service import Objects
    from headwater.federation.context import Context
    from headwater.federation.objects.budgets import Budgets
    from headwater.federation.peers.request_registry import Caller
    from headwater.objects.replicas.quality import QualityService
    from headwater.objects.replicas.spec import ReplicaSpec
    from headwater.types import EventType

REFUSED_SECONDS = 0.2  # of the processor that a turn may have taken which has found that it is too much, about
LEASE_SECONDS = 3600.0  # that a replica is held after its holder has last said so


class ReplicaServer:
    """Of one node. Requests come in threads of the network."""

    def __init__(self, objects: Objects, context: Context, budgets: Budgets) -> None:
        self._objects, self._context, self._budgets = objects, context, budgets

    def hold(self, caller: Caller, request: HoldReplica) -> ReplicaIs:
        with self._budgets.measured(caller.peer.id):
            spec = specs.unpack(request.spec)
            self._check_rights(caller, spec)
        engine = self._objects.engine
        type = specs.told_type(engine.types.named(spec.type).type)
        packed = pack_type(type)
        if packed is None:
            raise ObjectError(f"replica of {spec.pattern!r}: expected a type that can be told, found {spec.type!r}")
        at = self._held(caller.peer.id, spec)
        engine.announce(spec.channel, type)
        self._begins_anew(caller, spec.channel)
        rates = {name: (each.per_second, each.burst) for name, each in engine.rates.by_type.get(spec.type, {}).items()}
        return ReplicaIs(spec.channel, packed, LEASE_SECONDS, at, rates)

    def _held(self, node: str, spec: ReplicaSpec) -> int:
        """When its turn was. What that has taken is of the budget of the node: all of its objects are looked at."""
        self._budgets.check(node)
        took = REFUSED_SECONDS
        try:
            outcome = run(self._objects, holding(spec, node, int(LEASE_SECONDS * 1e6)))
            took = outcome.results[TOOK] / 1e9
            return outcome.at
        finally:
            self._budgets.spend(node, took)

    def _begins_anew(self, caller: Caller, channel: str) -> None:
        """It is told again how far what replicas are told has come: it takes nothing any more for what it has heard
        before, since it knows of all changes of policies, and nothing is hidden from it now."""
        with self._context.wiring.lock:
            crossing = caller.peer.crossings.get(channel)
            if crossing is not None and not crossing.untold:
                crossing.lapsed = any(each.hidden or each.limit is not None for each in crossing.asked.values())

    def _check_rights(self, caller: Caller, spec: ReplicaSpec) -> None:
        own = self._objects.engine.types.get(spec.type)
        if own is None or not self._may_hold(caller, spec.type, own.type):
            raise ObjectError(f"replica of {spec.pattern!r}: expected a type that it may read, found {spec.type!r}")
        specs.check(spec, own.type)

    def _may_hold(self, caller: Caller, type: str, form: EventType) -> bool:
        """Objects of types that are declared alike cannot be told apart: it must be allowed to see all of them."""
        types, decide = self._objects.engine.types, self._context.decisions.decide
        alike = [each.channel for each in types.values() if each.type == form]
        return all(
            isinstance(decide(caller.principal, "subscribe", channel), Allow)
            for channel in (CHANNEL + type + specs.SUFFIX, *alike)
        )

    def tell(self, caller: Caller, request: TellServices) -> ServicesAre:
        """Those of types that it may hold replicas of, or whose notifications it may subscribe to; of others it does
        not learn that they are there."""
        types, found = self._objects.engine.types, []
        channels: dict[str, tuple[str, bytes]] = {}
        for service in self._objects.services.values():
            if service.triggers and request.name in ("", service.name):
                open = self._channels(caller, service)
                if len(open) == len(service.levels):
                    found.append(quality.pack(service))
                    channels = open if request.name else {}
                continue
            type = types.get(service.type)
            asked = type is not None and request.name in ("", service.name)
            if type is not None and asked and self._may_hold(caller, service.type, type.type):
                found.append(quality.pack(service))
        return ServicesAre(found[:MOST_OBJECTS], channels)

    def _channels(self, caller: Caller, service: QualityService) -> dict[str, tuple[str, bytes]]:
        """By level, where its trigger tells, and what; of those that it may subscribe to."""
        triggers, found = self._objects.engine.triggers, {}
        for level, name in service.triggers.items():
            trigger = triggers.registry.by_name.get(name)
            type = None if trigger is None or trigger.notification is None else pack_type(trigger.notification.type)
            if trigger is not None and type is not None:
                channel = triggers.channel(trigger)
                if isinstance(self._context.decisions.decide(caller.principal, "subscribe", channel), Allow):
                    found[level] = channel, type
        return found

    def read(self, caller: Caller, request: ReadReplica) -> ReplicaPage:
        """By its rights as they are now: it was held, and may not be any more."""
        with self._context.decisions.reading():
            spec = self._objects.replica_spec(request.replica)
            if spec is not None:
                self._check_rights(caller, spec)
            found = self._objects.replica_page(request.replica, caller.peer.id, request.after, MOST_OBJECTS)
        if found is None:
            raise ObjectError("replica: expected one that this node holds, found none; hold it first")
        rows: list[ToldRow] = []
        size = PAGE_BYTES
        for path, record, at, turn, still in found:
            rows.append(ToldRow(path, record, at, turn, bool(still)))
            size -= len(record)
            if size <= 0:
                break
        more = len(rows) < len(found) or len(found) == MOST_OBJECTS
        return ReplicaPage(rows, rows[-1].path if rows and more else "")

    def release(self, caller: Caller, request: ReleaseReplica) -> Accepted:
        run(self._objects, releasing(specs.unpack(request.spec), caller.peer.id))
        return Accepted()


__all__ = ["LEASE_SECONDS", "ReplicaServer"]
