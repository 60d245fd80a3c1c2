"""Another node as this one sees it: what is known of it, what goes there, what comes from there, and the link to it.

PeerRecord   who it is, and what it has                                 (record.py)
Outgoing     and what goes there                                        (outgoing.py)
Incoming     and what comes from there                                  (incoming.py)
Peer         and the link, which comes and goes                         (this file)
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING

from headwater.errors import ClosedError, FederationError, LinkDown
from headwater.federation.peers.incoming import Incoming
from headwater.federation.peers.outgoing import new_memory
from headwater.federation.send.crossing import Crossing
from headwater.federation.transport.fallback import Fallback
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Bye

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.limiter import Limiter
    from headwater.federation.peers.parts import Parts
    from headwater.federation.transport.link import Link

log = logging.getLogger("headwater.federation")


class Peer(Incoming):
    """One for each node that was met; it stays while that node is away, for as long as something is kept for it."""

    def __init__(self, parts: Parts, node: str, incarnation: int) -> None:
        super().__init__(parts, node, incarnation)
        self.dialled = False  # its link, by this node
        self.since = 0.0  # when that was made
        self.calling = False
        self.trouble = ""  # why there is no direct stream
        self.fallback = Fallback()
        self.past_bytes = [0, 0]  # of links that are no more: out, in

    @property
    def quota(self) -> Limiter | None:
        """What it may have of this node, if there is a limit."""
        return self._context.quotas.of(self.principal, self.id)

    def crossing(self, channel: Channel) -> Crossing:
        found = self.crossings.get(channel.name)
        if found is None or found.channel is not channel:
            found = self.crossings[channel.name] = Crossing(self, channel)
        return found

    def link_up(self, link: Link, *, dialled: bool) -> None:
        """Another link, from now on: first each end says what it has. LinkDown if the peer was forgotten since: the
        next link is of the one that has its place."""
        with self.lock:
            if self.forgotten:
                raise LinkDown(f"{self.name} had left, and was forgotten just now")
            with self.building:  # what the old one still brings in must not be taken for this one's
                old, self.link = self.link, link
                self.dialled, self.resumed = dialled, False
            self.heard = self.since = monotonic()
            self.links += 1
            self.gone, self.trouble = None, ""
            if old is not None:
                self._let_go(old, "another link took its place")
            with self.building:
                self.control.clear()
                self.control.append(self._resume())
                known = [*self.remote_sources.items(), *self._ended()]
                said = [(sid, source.acknowledged) for sid, source in known if source.acknowledged]
                if said:  # it may have been lost with the link
                    self.control.append(wire.encode_ack(said))
                for lane in self.lanes():
                    lane.announced = False
        try:
            self.sender.attach(link)
        except ClosedError:  # the node was closed meanwhile
            self._let_go(link, "its node was closed")
            return
        self.send_soon()
        self.scheduler.changed()

    def given_up(self) -> None:
        """Something that the other end has asked for, and may not know to be over, is kept no longer."""
        self.memory = new_memory()
        self.resume()

    def link_down(self, link: Link, reason: str) -> None:
        """A link has ended; called once, by its thread."""
        with self.lock:
            if self.link is not link:
                return
            self.link, self.resumed = None, False
            self.trouble = reason
            self._let_go(link, reason)
        log.info("node %s: the link to %s has ended: %s", self._context.name, self.name, reason)
        self.attendance.link_lost(self)

    def _let_go(self, link: Link, reason: str) -> None:
        self.sender.detach(link)
        self.past_bytes[0] += link.bytes_out
        self.past_bytes[1] += link.bytes_in
        link.close(reason)

    @property
    def direct(self) -> bool:
        link = self.link
        return link is not None and link.kind != "zenoh"

    def close(self, reason: str) -> None:
        link = self.link
        if link is not None:
            self.say(wire.encode_control(Bye(reason)))
            self.sender.flush(0.5)
        self.sender.close()
        with self.lock:
            self.link = None
        if link is not None:
            self._let_go(link, reason)

    @property
    def bytes_out(self) -> int:
        link = self.link
        return self.past_bytes[0] + (0 if link is None else link.bytes_out)

    @property
    def bytes_in(self) -> int:
        link = self.link
        return self.past_bytes[1] + (0 if link is None else link.bytes_in)

    def __repr__(self) -> str:
        kind = "no link" if self.link is None else self.link.kind
        return f"<Peer {self.id}, {kind}>"


__all__ = ["FederationError", "Peer"]
