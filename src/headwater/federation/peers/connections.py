"""The links to other nodes: a direct stream to each, called or answered, and Zenoh's path where none can be made."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from headwater.errors import FederationError, FrameError, HeadwaterError, LinkDown, SecurityError, Unreachable
from headwater.federation.endpoints import is_loopback
from headwater.federation.security.envelope import Opened
from headwater.federation.security.offences import who_sent
from headwater.federation.transport.connection import dial
from headwater.federation.transport.handshake import Host, Introduction
from headwater.federation.transport.stream import Stream
from headwater.federation.transport.zenoh_link import RoutedLink, read_head
from headwater.federation.wire import frames as wire
from headwater.federation.wire import requests as messages

if TYPE_CHECKING:
    from headwater.federation.context import Context
    from headwater.federation.fabric.fabric import Fabric
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.membership import Membership
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers

log = logging.getLogger("headwater.federation")
FIRST_RETRY_SECONDS = 0.05  # after which a node is called again at first, and at most
LONGEST_RETRY_SECONDS = 2.0
REASON_CHARACTERS = 500  # characters of why there is no direct stream
RESUME_SECONDS = 1.0  # in which the other end of a link over Zenoh has said what it has, as a rule
CALL_SECONDS = 2.0  # for a direct stream to be made


class Connections:
    """Of one node."""

    def __init__(
        self, context: Context, peers: Peers, fabric: Fabric, dialogue: Dialogue, membership: Membership
    ) -> None:
        self._context, self._peers, self._fabric = context, peers, fabric
        self._dialogue, self._membership = dialogue, membership
        self.reasons: list[Callable[[Peer], bool]] = []  # beside events: why services want a link to a peer
        self.host = Host(context.keyring, context.offences, self.established, peers.get)

    def link_wanted(self, peer: Peer) -> None:
        """A peer wants events of this node: if it could not make a link, perhaps this node can."""
        if peer.link is None:
            self._context.scheduler.later(
                FIRST_RETRY_SECONDS, lambda: self.connect(peer) if peer.link is None else None
            )

    def established(self, opened: Opened, stream: Stream, *, dialled: bool) -> Peer:
        """A stream whose other end has proven who it is."""
        peer = self._membership.signed_by(opened)
        with peer.lock:
            if opened.incarnation != peer.incarnation:
                raise SecurityError(f"{opened.sender} was started again since", "stale", opened.sender)
            if peer.direct and not self._preferred(peer, dialled):
                raise LinkDown(f"there is a stream to {peer.name} already")
        peer.link_up(stream, dialled=dialled)
        peer.fallback.ended(self._context.name, peer.name)
        return peer

    def _preferred(self, peer: Peer, dialled: bool) -> bool:
        """If both have called at the same time, the call of the node with the lesser id stays."""
        recent = monotonic() - peer.since < 1.0
        return not (recent and peer.dialled == (self._context.id < peer.id) and dialled != peer.dialled)

    def connect(self, peer: Peer, pace: float = FIRST_RETRY_SECONDS) -> None:
        """See to it that there is a link; soon, not now."""
        with peer.lock:
            if peer.calling or self._over(peer) or peer.direct:
                return
            peer.calling = True
        if not self._context.scheduler.work(self._connect, peer, pace, on=f"link to {peer.id}"):
            peer.calling = False

    def _connect(self, peer: Peer, pace: float) -> None:
        try:
            reached = self.call(peer)
        finally:
            peer.calling = False
        if not reached and not self._over(peer) and (peer.present or peer.gone is None):
            again = min(LONGEST_RETRY_SECONDS, 2 * pace)
            self._context.scheduler.later(
                pace, lambda: None if peer.direct or not self.wanted(peer) else self.connect(peer, again)
            )

    def _over(self, peer: Peer) -> bool:
        """Whether nobody needs a link to it any more."""
        return self._context.closed or peer.forgotten

    def call(self, peer: Peer) -> bool:
        """A direct stream to a peer if that is possible, else the routed path; whether it is direct."""
        if self._context.network.direct != ():
            self._membership.fetch(peer, CALL_SECONDS)  # where it can be called
        state = peer.state
        if peer.direct or peer.forgotten or state is None:
            return peer.direct
        contexts = self._context.keyring.credentials.contexts
        client = None if contexts is None else contexts[1]
        for endpoint in state.endpoints if self._context.network.direct != () else ():
            if is_loopback(endpoint) and not self._context.keyring.loopback and not endpoint.startswith("unix"):
                continue
            try:
                stream = dial(endpoint, tls=client, timeout=CALL_SECONDS)
                links = peer.links
                stream = Introduction(self.host).made(stream, peer.id, CALL_SECONDS)
            except (HeadwaterError, OSError) as error:
                peer.trouble = f"{endpoint}: {error}"
                continue
            if self._context.scheduler.until(partial(_linked, peer, links, stream), CALL_SECONDS) and peer.direct:
                return True
            if peer.forgotten:  # it was meanwhile, and the stream is of the one that has its place
                return False
            peer.trouble = f"{endpoint}: it has not said who it is within {CALL_SECONDS:g} s, or has hung up"
            stream.close("the other node did not answer")
        if peer.link is None and peer.present:
            self._route(peer)
        return False

    def _route(self, peer: Peer) -> None:
        """No direct stream: agree on Zenoh's path, if that is allowed."""
        network, state = self._context.network, peer.state
        wanted = network.direct == () or (state is not None and peer.described and not state.endpoints)
        why = "one of the two nodes offers no direct streams" if wanted else peer.trouble or "no place to call it at"
        if network.fallback == "never":
            peer.fallback.forbidden(self._context.name, peer.name, why)
            return
        try:
            self._dialogue.ask(peer, messages.Routed(why[:REASON_CHARACTERS], network.direct == ()))
        except (Unreachable, FederationError) as error:
            peer.trouble = str(error)
            return
        self._link_routed(peer, why, wanted=wanted)

    def _link_routed(self, peer: Peer, why: str, *, wanted: bool) -> None:
        with peer.lock:
            self._link_routed_now(peer, why, wanted)

    def _link_routed_now(self, peer: Peer, why: str, wanted: bool) -> None:
        state = peer.state
        if state is None or peer.link is not None or self._over(peer):
            return
        session = partial(self._context.keyring.exchange.session, state.exchange, me=self._context.id, peer=peer.id)
        link = RoutedLink(
            self._fabric,
            self._context.id,
            self._context.incarnation,
            peer.id,
            session,
            partial(self._on_routed, peer),
        )
        peer.link_up(link, dialled=True)
        self._context.scheduler.later(RESUME_SECONDS, partial(self._ensure_resumed, peer, link))
        peer.trouble = why
        peer.fallback.began(self._context.name, peer.name, why, wanted=wanted)

    def _ensure_resumed(self, peer: Peer, link: RoutedLink) -> None:
        """Nothing goes before the other end has said what it has. It may not know of this link, or what it said was
        lost: it is asked again until it has."""
        if peer.link is link and link.ended is None and not peer.resumed and not self._context.closed:
            self._context.scheduler.work(self._ask_to_resume, peer, link, on=f"link to {peer.id}")

    def _ask_to_resume(self, peer: Peer, link: RoutedLink) -> None:
        with suppress(Unreachable, FederationError):
            self._dialogue.ask(
                peer, messages.Routed(peer.trouble[:REASON_CHARACTERS], self._context.network.direct == ())
            )
        self._context.scheduler.later(RESUME_SECONDS, partial(self._ensure_resumed, peer, link))

    def use_routed(self, peer: Peer, request: messages.Routed) -> messages.Accepted:
        if peer.direct:
            return messages.Accepted()
        if self._context.network.fallback == "never":
            peer.fallback.forbidden(self._context.name, peer.name, request.why)
            return messages.Accepted('it takes events by direct streams only: Network(fallback="never")')
        if peer.state is None:  # it is being asked for it; whoever answers questions waits for nobody
            return messages.Accepted("what this node has is not known here yet: ask again")
        if peer.link is None:
            if self._context.network.direct != () and (peer.state.endpoints or not peer.described):
                self.connect(peer)  # perhaps it can be reached from here
            why = request.why if request.wanted else f"it says that it cannot reach this one: {request.why}"
            self._link_routed(peer, why, wanted=request.wanted or self._context.network.direct == ())
        else:  # the link has ended at the other end only, which waits to hear from where on to begin
            peer.resume()
        return messages.Accepted()

    def on_post(self, payload: bytes) -> None:
        """Frames that came over Zenoh, where there is no direct stream. They are opened with the key agreed on with
        that peer, and go the same way as those of a stream."""
        try:
            node, incarnation, head, sealed = read_head(payload)
            with self._peers.lock:
                peer = self._peers.get(node)
            if peer is None or peer.exchange is None or peer.state is None or peer.incarnation != incarnation:
                raise SecurityError(f"a posted message of {node}, which is not known here", "stranger", node)
            session = self._context.keyring.exchange.session(peer.exchange, me=self._context.id, peer=peer.id)
            data = session.open(sealed, head)
            if self._context.network.fallback == "never":
                raise SecurityError(f"{node} posts events, and only direct streams are allowed here", "rule", node)
        except (FrameError, SecurityError) as error:
            self._context.offences.note(who_sent(error), str(error))
            return
        if peer.link is None:
            # Its answer was quicker than that to our question.
            wanted = self._context.network.direct == ()
            self._link_routed(peer, peer.trouble or "the other node uses Zenoh's path", wanted=wanted)
        link = peer.link
        if isinstance(link, RoutedLink) and link.ended is not None:
            peer.link_down(link, link.ended)  # nobody else would say so; the next one begins with what is missing
        elif isinstance(link, RoutedLink):  # else it is of before there was a stream: what counts comes again there
            link.arrived(data)

    def _on_routed(self, peer: Peer, link: RoutedLink, data: memoryview) -> None:
        try:
            if len(data) > 4 and int.from_bytes(data[:4], "little") == len(data) - 4:
                peer.on_frame(data[4:], link)  # just one, as on every round trip
                return
            for frame in wire.Splitter().feed(bytes(data)):
                if link.ended is not None:
                    return  # the next link brings the rest again, and the end of a source after that
                peer.on_frame(frame, link)
        except (FrameError, SecurityError) as error:
            self._context.offences.note(peer.id, str(error))
        except Exception as error:  # the reader must go on, and the failure must be seen
            log.error("node %s: a frame of %s could not be handled", self._context.name, peer.name, exc_info=error)

    def wanted(self, peer: Peer) -> bool:
        """Whether there is a reason to have a link."""
        if bool(peer.crossings) or any(each.demand.wishes or each.busy for each in peer.asked.values()):
            return True
        return any(wants(peer) for wants in self.reasons)


def _linked(peer: Peer, before: int, stream: Stream) -> bool:
    return peer.links > before or stream.ended is not None or peer.forgotten
