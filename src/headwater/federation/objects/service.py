"""What other nodes may ask of this node's objects, and who answers. Whatever knows objects is loaded, and the objects
are opened, when the first one asks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.channel.services import Service
from headwater.errors import HeadwaterError, ObjectError
from headwater.federation.wire import object_requests as wire
from headwater.federation.wire.requests import Accepted

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.federation.context import Context
    from headwater.federation.objects.object_server import ObjectServer
    from headwater.federation.objects.replica_server import ReplicaServer
    from headwater.federation.objects.trigger_server import TriggerServer
    from headwater.federation.peers.request_registry import Caller

SERVICE = "objects"  # of the node's own objects, once they are open
ERROR_CHARACTERS = 2000  # of a refusal


class Servers(NamedTuple):
    """Who answers what is asked of objects."""

    objects: ObjectServer
    triggers: TriggerServer
    replicas: ReplicaServer


Answer = Callable[[Servers], Callable[["Caller", Any], Any]]
_ANSWERS: tuple[tuple[Any, Answer], ...] = (
    (wire.SubmitTransaction, lambda of: of.objects.submit),
    (wire.CollectOutcome, lambda of: of.objects.collect),
    (wire.ReadObjects, lambda of: of.objects.read),
    (wire.TellTypes, lambda of: of.objects.tell),
    (wire.InstallTrigger, lambda of: of.triggers.install),
    (wire.ChangeTrigger, lambda of: of.triggers.change),
    (wire.RemoveTrigger, lambda of: of.triggers.remove),
    (wire.HoldReplica, lambda of: of.replicas.hold),
    (wire.ReadReplica, lambda of: of.replicas.read),
    (wire.ReleaseReplica, lambda of: of.replicas.release),
    (wire.TellServices, lambda of: of.replicas.tell),
    (wire.TellTriggers, lambda of: of.triggers.tell),
    (wire.ExplainTrigger, lambda of: of.triggers.explain),
)


class ObjectService(Service):
    """Of one node. Requests come in threads of the network."""

    name = "objects for others"

    def __init__(self, node: Node, context: Context) -> None:
        self._node, self._context = node, context
        self._lock = threading.Lock()
        self._servers: Servers | None = None
        self._missed: list[Callable[[str], bool]] = []  # changes of policies before objects were open
        self.refused = 0

    def report(self) -> dict[str, int]:
        """What other nodes have asked for, in numbers."""
        servers = self._servers
        submitted, busy = (0, 0) if servers is None else (servers.objects.submitted, servers.objects.busy)
        return {"submitted": submitted, "told to come later": busy, "refused": self.refused}

    def requests(self) -> Iterable[tuple[Any, Callable[..., Any]]]:
        return ((kind, partial(self._answer, answer)) for kind, answer in _ANSWERS)

    def _answer(self, answer: Answer, caller: Caller, request: Any) -> Any:
        """What is refused is said to who asks."""
        try:
            return answer(self._opened())(caller, request)
        except HeadwaterError as error:
            self.refused += 1
            return Accepted(error=f"refused: {error}"[:ERROR_CHARACTERS])

    def rejudge(self, concerns: Callable[[str], bool], backlog: bool) -> None:
        """Policies have changed: also of what others have asked for in a life before. Where objects are not open yet,
        they are judged when they are."""
        with self._lock:
            late = self._node.services.get(SERVICE) is None
            if late and self._node.state is not None:
                self._missed.append(concerns)
        if not late:
            self._opened().triggers.rejudge(concerns)

    def attached(self) -> None:
        """The objects of this node are open, and run."""
        with self._lock:
            missed, self._missed = self._missed, []
        if missed:
            self._context.scheduler.work(
                lambda: self.rejudge(lambda channel: any(each(channel) for each in missed), True)
            )

    def _opened(self) -> Servers:
        if self._node.state is None:
            raise ObjectError("it owns no objects: it has no state to keep them in")
        objects = self._node.objects  # without the lock: whoever opens them says `attached`
        with self._lock:
            if self._servers is None:
                from headwater.federation.objects.budgets import Budgets
                from headwater.federation.objects.object_server import ObjectServer
                from headwater.federation.objects.replica_server import ReplicaServer
                from headwater.federation.objects.trigger_server import TriggerServer

                budgets = Budgets()
                self._servers = Servers(
                    ObjectServer(objects, self._context, budgets),
                    TriggerServer(objects, self._context, budgets),
                    ReplicaServer(objects, self._context, budgets),
                )
            return self._servers


__all__ = ["ObjectService"]
