"""What is known of another node: who it is, what it has said that it has, and whether it is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from headwater.federation.peers.inquiries import Pace

if TYPE_CHECKING:
    from headwater.federation.demand.demand import InterestRequest
    from headwater.federation.security.rules import Principal
    from headwater.federation.wire.control import SourceAd
    from headwater.federation.wire.requests import ChannelAd, State


def _any(node: str, channel: str) -> bool:
    return True


class PeerRecord:
    """One for each node that was met; it stays while that node is away, for as long as something is kept for it.

    `consented` says whether the sources that a node has of a channel count here: of a channel that was subscribed to by
    its name, those of nodes that the domain of the name has consented to."""

    consented: Callable[[str, str], bool] = staticmethod(_any)

    def __init__(self, node: str, incarnation: int) -> None:
        self.id, self.incarnation = node, incarnation
        self.name = node.rpartition(".")[0]
        self.exchange: bytes | None = None  # the key to write to this run of it with
        self.principal: Principal | None = None
        self.present = False  # on Zenoh
        self.gone: float | None = None  # since when it is neither on Zenoh nor at the end of a stream
        self.given_up_at: float | None = None  # gone for so long that its sources were withdrawn
        self.parted = False  # it has said goodbye: all that it sent has come
        self.forgotten = False  # nobody finds it any more: should its node be back, it is another peer
        self.met = self.addressed = monotonic()  # when it was met; when it has last asked something, or was asked
        self.lock = threading.RLock()
        # what it has
        self.state: State | None = None
        self.described = False  # it has said what it has, and not only that it is there
        self.considered = 0  # the version of which all that follows for sinks here was looked at
        self.newest = 0  # the version of its state that is the latest, as it says
        self.pages: State | None = None  # of its state, as far as they have come
        self.state_bytes = self.pages_bytes = 0  # of its state, and of those pages, at most
        self.pace = Pace()  # of questions what is new there
        self.session = ""  # of Zenoh, as it says
        self.columns = True  # whether it takes rows as columns, and compressed frames
        self.names = False  # whether it takes interests by name
        self._index: tuple[State | None, dict[str, ChannelAd], dict[str, str]] = (None, {}, {})
        # what it was asked for, and what it has asked for
        self.asked: dict[str, InterestRequest] = {}  # by channel
        self.memory_there = 0  # in which it keeps that, as it has said over the present link
        self.refused_here: dict[str, str] = {}  # the last names that it has asked for and may not have, and why

    @property
    def is_given_up(self) -> bool:
        """Whether it is gone, and not expected any longer."""
        return self.gone is not None and self.gone == self.given_up_at

    @property
    def sources(self) -> list[SourceAd]:
        return [] if self.state is None else self.state.sources

    @property
    def behind(self) -> bool:
        """Whether it has said that there is something new, and not yet what."""
        return self.state is not None and self.state.version < self.newest

    def _indexed(self) -> tuple[State | None, dict[str, ChannelAd], dict[str, str]]:
        """Of its state: channels by name, and by name of those with sources the log that they have, if any."""
        index, state = self._index, self.state
        if index[0] is not state:
            channels = {} if state is None else {ad.name: ad for ad in state.channels}
            logs: dict[str, str] = {}
            for source in self.sources:
                logs[source.channel] = logs.get(source.channel) or source.log
            index = self._index = state, channels, logs
        return index

    def has(self, channel: str) -> bool:
        """Whether it advertises a source of that channel."""
        return channel in self._indexed()[2] and self.consented(self.id, channel)

    def offers(self, channel: str) -> bool:
        """Whether it has sources of that channel, or derives it; else its sinks may want it, or nothing is known."""
        _, channels, logs = self._indexed()
        if not self.consented(self.id, channel):
            return False
        return channel in logs or ((ad := channels.get(channel)) is not None and ad.parent is not None)

    def channel(self, name: str) -> ChannelAd | None:
        return self._indexed()[1].get(name)

    def log(self, channel: str) -> str:
        """The log that its sources of a channel have, if any."""
        return self._indexed()[2].get(channel, "")

    def gap(self, channel: str) -> tuple[int, int]:
        """When something was last not heard of a channel that gateways there pass on, and since when all is."""
        asked = self.asked.get(channel)
        return (0, 0) if asked is None else (asked.gap, asked.since)

    def place(self, channel: str, log: str | None = None) -> str:
        """Where sources of a channel are, so that sinks know whose past they have had: the log, or this node."""
        known = self.log(channel) if log is None else log
        return f"log {self.name} {known}" if known else f"{self.id} {channel}"


__all__ = ["PeerRecord"]
