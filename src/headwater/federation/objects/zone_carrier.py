"""Triggers over values of several nodes, on the wire: what homes and owners say to each other is posted.

Posts may be lost, and nothing waits for them; questions are put again by who needs an answer. One heartbeat for each
pair of nodes carries where all triggers between them stand, and is sent only while there are any. What a home wants
measured is checked here: it may only have watched what it may `subscribe` to and `install` code on, now and for as long
as it is watched. What a home does not renew ends after `WATCH_SECONDS`.

One thread does it all; what comes is bounded by what may wait for it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.errors import ClosedError, FrameError, HeadwaterError
from headwater.federation.objects.budgets import Budgets
from headwater.federation.objects.zone_terms import terms_of
from headwater.federation.peers.post_registry import post
from headwater.federation.wire import zone_posts as wire
from headwater.objects.zones.messages import Alive, FromOwner, ToOwner

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.objects.service import Objects
    from headwater.federation.context import Context
    from headwater.federation.peers.connections import Connections
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.federation.security.rules import Principal
    from headwater.objects.operations import Administer
    from headwater.threads import Worker
    from headwater.types import EventType

T = TypeVar("T")
WATCH_SECONDS = 3_600.0  # after which what a home does not renew ends
RENEW_BEATS = 8  # heartbeats between two renewals, and between two looks at the rights of homes
ERRANDS = 256  # of one home that may wait for their turns; what comes beyond is lost
HELD = 256  # posts that wait for a link to come up


class ZoneCarrier:
    """Of one node: meets `Homeward` and `Ownerward`. `ZoneService` has it made, and says when time has passed."""

    def __init__(
        self, node: Node, context: Context, peers: Peers, dialogue: Dialogue, links: Connections, worker: Worker
    ) -> None:
        self._node, self._context, self._peers = node, context, peers
        self._dialogue, self._links, self._worker = dialogue, links, worker
        self.terms = terms_of(context.network)
        self._objects: Objects | None = None
        self._errands: Counter[str] = Counter()  # of homes, that wait for their turns
        self._renewed: dict[tuple[str, bytes], float] = {}
        self._held: dict[str, deque[bytes]] = {}
        self._budgets = Budgets()
        self._beats = 0
        self.posted = self.came = self.lost = self.refused = 0
        context.scheduler.watchers.append(self._linked)
        links.reasons.append(lambda peer: peer.name in self._partners() or peer.id in self._homes())

    def report(self) -> dict[str, Any]:
        """What was posted and came, in messages beside heartbeats, and what was lost or refused here."""
        found: dict[str, Any] = {"posted": self.posted, "came": self.came, "lost": self.lost, "refused": self.refused}
        if self._objects is not None:
            found |= {"triggers": len(self._objects.homes), **self._objects.watches.report()}
        return found

    # ── what objects need of it ──

    def attach(self, objects: Objects) -> None:
        """The objects of this node are open: those that they watch, or have watched, hear of each other from now on."""
        self._objects = objects
        objects.watches.carrier = self
        objects.homes.start(self)

    def is_there(self, node: str) -> bool:
        """Whether a node can be asked now."""
        peer = self._named(node)
        return peer is not None and peer.link is not None

    def type_of(self, node: str, object: str, named: str) -> tuple[str, EventType]:
        """The type of an object of another node, which is asked for it."""
        from headwater.errors import ObjectError
        from headwater.federation.objects.remote import RemoteObjects

        remote = RemoteObjects(node, self._context, self._peers, self._dialogue)
        if not named:
            kept = remote.get(object)
            if kept is None:
                raise ObjectError(
                    f"inputs: //{node}/{object}: expected an object that this node may read, found none; create it "
                    "before, or give its type: (name, type)"
                )
            named = kept.type
        types = remote.types
        if named not in types:
            raise ObjectError(f"inputs: //{node}/{object}: type {named!r}: expected one that this node may read there")
        return named, types[named]

    def later(self, task: Callable[[], object]) -> None:
        """Done by the thread of this service, in order."""
        self._worker.put(task, always=True)

    # ── to owners ──

    def watch(self, node: str, key: bytes, form: bytes) -> None:
        self._to_owner(node, wire.Watch(key, form))

    def to_owner(self, node: str, key: bytes, message: ToOwner) -> None:
        self._to_owner(node, wire.Told(key, message))

    def end(self, node: str, key: bytes) -> None:
        self._to_owner(node, wire.End(key))

    def _to_owner(self, node: str, said: Any) -> None:
        if node == self._context.name:
            self.later(partial(self._as_owner, self._context.id, said))
            return
        peer = self._named(node)
        if peer is not None:
            self._post(peer, said)
        else:
            self.lost += 1

    def _named(self, node: str) -> Peer | None:
        """The node of that name; None if there is none, or two claim to be it."""
        there = [each for each in self._peers.everyone() if each.name == node and each.gone is None]
        return there[0] if len(there) == 1 else None

    # ── to homes ──

    def to_home(self, home: str, key: bytes, message: FromOwner) -> None:
        said = wire.Alive(((key, message.standing),)) if isinstance(message, Alive) else wire.Said(key, message)
        self._to_home(home, said)

    def gone(self, home: str, key: bytes, why: str) -> None:
        if why:
            self.refused += 1
        self._to_home(home, wire.Gone(key, why[:2000]))

    def _to_home(self, home: str, said: Any) -> None:
        if home == self._context.id:
            self.later(partial(self._as_home, self._context.name, said))
            return
        peer = self._peers.get(home)
        if peer is not None and peer.gone is None:
            self._post(peer, said)
        else:
            self.lost += 1

    def _post(self, peer: Peer, said: Any) -> None:
        """By the link that there is; if there is none, one is asked for, and some wait for it."""
        try:
            body = wire.encode(said)
        except FrameError:
            self.lost += 1
            return
        if not isinstance(said, wire.Alive | wire.Renew):
            self.posted += 1
        if not post(peer, wire.KIND, body):
            self._held.setdefault(peer.id, deque(maxlen=HELD)).append(body)
            self._links.connect(peer)
            self._linked()  # it may just have come up

    def _linked(self) -> None:
        """Something has changed: links may have come up."""
        for node in list(self._held):
            peer = self._peers.get(node)
            if peer is None:
                self._held.pop(node, None)
            elif peer.link is not None:
                for body in self._held.pop(node, ()):
                    post(peer, wire.KIND, body)

    # ── what comes ──

    def take(self, peer: Peer, body: bytes) -> None:
        """A post of another node."""
        try:
            said = wire.decode(body)
        except FrameError as error:
            self._context.offences.note(peer.id, str(error))
            return
        if not isinstance(said, wire.Alive | wire.Renew):
            self.came += 1
        if isinstance(said, wire.TO_OWNER):
            self._as_owner(peer.id, said, peer)
        elif self._named(peer.name) is peer:
            self._as_home(peer.name, said)
        else:
            self.lost += 1  # another node of that name: who of the two is meant, nobody knows

    def _as_home(self, node: str, said: Any) -> None:
        objects = self._objects
        if objects is None:
            return
        match said:
            case wire.Said(key, message):
                objects.homes.received(node, key, message)
            case wire.Alive(standings):
                for key, standing in standings:
                    objects.homes.received(node, key, Alive(standing))
            case wire.Gone(key, why):
                objects.homes.gone(node, key, why)

    def _as_owner(self, home: str, said: Any, peer: Peer | None = None) -> None:
        """Of a home: it is done in the queue, if the home may. `peer` is missing if that is this node itself."""
        objects = self._opened()
        if objects is None:
            if not isinstance(said, wire.Renew | wire.End):
                self.gone(home, said.key, "it owns no objects: it has no state to keep them in")
            return
        from headwater.objects.zones.watches import ending, telling, watching

        now = self._context.node.clock.now()
        match said:
            case wire.Watch(key, form):
                if (home, key) in objects.watches:
                    return
                principal = None if peer is None else peer.principal
                if peer is not None and principal is None:
                    self.gone(home, key, "")  # who it is will be known in a moment
                elif principal is not None and (why := self._forbidden(objects, form, principal, home)):
                    self.gone(home, key, why)
                else:
                    self._renewed[home, key] = now
                    self._errand(objects, home, watching(home, key, form))
            case wire.Told(key, message):
                self._renewed[home, key] = now
                self._errand(objects, home, telling(home, key, message))
            case wire.End(key) if (home, key) in objects.watches:
                self._errand(objects, home, ending(home, key))
            case wire.Renew(keys):
                for key in keys:
                    if (home, key) in objects.watches:
                        self._renewed[home, key] = now
                    else:
                        self.gone(home, key, "")

    def _errand(self, objects: Objects, home: str, operation: Administer) -> None:
        """In the queue, as everything; what a home asks for faster than it can be done is lost."""
        from headwater.objects.operations import Transaction

        if self._errands[home] >= ERRANDS:
            self.lost += 1
            return
        self._errands[home] += 1

        def told(outcome: Any) -> None:
            self._errands[home] -= 1

        try:
            objects.engine.submit(Transaction((operation,)), waits=True, told=told)
        except ClosedError:
            self._errands[home] -= 1

    def _opened(self) -> Objects | None:
        """The objects of this node: opened by the first that asks for something of them."""
        if self._objects is None and self._node.state is not None and not self._node.closed:
            with suppress(ClosedError):
                return self._node.objects  # they attach themselves, if another thread opens them perhaps in a moment
        return self._objects

    # ── rights ──

    def _forbidden(self, objects: Objects, form: bytes, principal: Principal, home: str) -> str:
        """Why a home may not have this measured; nothing if it may."""
        from headwater.federation.objects.rights import open_types
        from headwater.objects.zones.part_form import unpack_form

        try:
            wanted = {each.type for each in unpack_form(form).inputs.values()}
        except HeadwaterError as error:
            return str(error)
        closed = sorted(wanted - open_types(self._context, objects, principal))
        if not closed:
            return self._unsound(objects, form, home)
        return f"expected types that it may subscribe to and install code on, found {', '.join(closed)}"

    def _unsound(self, objects: Objects, form: bytes, home: str) -> str:
        """What is wrong with a part; nothing if it can be run. What checking it takes is the home's."""
        try:
            with self._budgets.measured(home):
                objects.watches.prepare(form)
        except HeadwaterError as error:
            return str(error)
        return ""

    def examine(self) -> None:
        """Look at the rights of homes now."""
        if self._objects is not None and not self._node.closed:
            self._examine(self._objects)

    def _examine(self, objects: Objects) -> None:
        """Rights may have been taken away since, and homes may be gone for good."""
        from headwater.federation.objects.rights import open_types
        from headwater.objects.zones.watches import ending

        now = self._context.node.clock.now()
        allowed: dict[str, set[str] | None] = {}
        for (home, key), measure in objects.watches:
            if home != self._context.id and home not in allowed:
                peer = self._peers.get(home)
                known = peer is not None and peer.principal is not None
                allowed[home] = open_types(self._context, objects, peer.principal) if known else None  # type: ignore[union-attr, arg-type]
            open = allowed.get(home)
            if open is not None and not {each.type for each in measure.form.inputs.values()} <= open:
                self._errand(objects, home, ending(home, key, "it may not watch these objects any more"))
            elif now - self._renewed.setdefault((home, key), now) > WATCH_SECONDS:
                self._errand(objects, home, ending(home, key))
        self._renewed = {place: at for place, at in self._renewed.items() if place in objects.watches}

    # ── time ──

    @property
    def busy(self) -> bool:
        """Whether anything is watched here, or has others watch: then there are heartbeats."""
        return self._objects is not None and bool(len(self._objects.watches) or len(self._objects.homes))

    @property
    def is_home(self) -> bool:
        """Whether triggers of this node wait for others."""
        return self._objects is not None and len(self._objects.homes) > 0

    def _partners(self) -> Iterable[str]:
        """Nodes that own what triggers of this one are about."""
        return () if self._objects is None else self._objects.homes.keys()

    def _homes(self) -> set[str]:
        return set() if self._objects is None else {home for (home, _), _ in self._objects.watches}

    def tick(self) -> None:
        """Time passed, for what waits for an answer."""
        if self._objects is not None:
            self._objects.homes.tick()

    def beat(self) -> None:
        """One heartbeat to each home, and now and then a renewal to each owner."""
        objects = self._objects
        if objects is None or self._node.closed:
            return
        for home, standings in objects.watches.standings().items():
            for some in _chunks(standings):
                self._to_home(home, wire.Alive(tuple(some)))
        self._beats += 1
        if self._beats % RENEW_BEATS == 1:
            for node, keys in objects.homes.keys().items():
                for few in _chunks(keys):
                    self._to_owner(node, wire.Renew(tuple(few)))
            self._examine(objects)


def _chunks(many: Iterable[T]) -> Iterator[list[T]]:
    """As much as one post takes, again and again."""
    rest = iter(many)
    while some := list(islice(rest, wire.MOST_KEYS)):
        yield some


__all__ = ["ZoneCarrier"]
