"""Who sequences a channel: terms, votes and leases.

    Ballot       what one node knows, and has promised, about who sequences a channel; every node has one
    Ballots      those of a node, by channel, and its answers to who asks for its vote
    Electorate   all nodes of a federation, as one of them asks them for theirs

A sequencer leads in a *term*, which has a number that no other has. To lead, it must be elected: more than half of all
nodes promise, each once per term, to hear nobody of an older term. A leader then says again and again that it is there,
with a *lease*: who has heard that elects nobody else for so long. The leader counts the lease from before it has asked,
by its own clock, and does nothing while fewer than half of the nodes (itself among them) have granted it. So when
somebody else can be elected, who led before has stopped, even one that was frozen meanwhile and does not know it yet.

A leader gives no place beyond those it has *reserved* when it was last granted its lease: who is elected next, with
nobody that knows its last place exactly, goes on after all it may have given.

A leader also says who *follows* it closely: who could go on from exactly where it is. Nobody else is elected while one
of them, or the leader, is there. That is why fewer than half of the nodes can be gone, or out of reach, at a time, if
events are to be put in order: a part of a broken network that has not more than half of the nodes waits. (A node that
does not come back counts for as long as others keep what it wanted, `Network.keep`; one that is started again under
its name counts as the same.) What a node has promised it forgets when it is started again: if more than half are
within one lease, two may lead, until one hears of the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from msgspec.structs import replace

from headwater.errors import FederationError, SecurityError
from headwater.federation.arrive.deduplication import Fence
from headwater.federation.wire.requests import ORDERED, ORDERING, Accepted, Lead, Stand, Vote

if TYPE_CHECKING:
    from headwater.federation.context import Context
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.federation.security.envelope import Opened
    from headwater.federation.security.rules import Principal

ASKED_AT_ONCE = 8  # nodes that are asked for their vote at a time
MOST_BALLOTS = 4096  # of which a node keeps a ballot: beyond, it does not vote
NEVER = float("-inf")


class Ballot:
    """Of one channel at one node; `now` is that node's monotonic clock."""

    def __init__(self) -> None:
        self.promised = 0  # the latest term that it has heard of, or voted for: it hears of no older one
        self.voted = ""  # who leads in that, or would
        self.term = 0  # the latest term in which it has heard a leader
        self.leader = ""
        self.version = 0
        self.followers: frozenset[str] = frozenset()  # who could go on from where that leader is, itself among them
        self.place = 0  # that leader's last place, as far as it was heard
        self.reserved = 0  # up to here it may have given places, as it has said before it gave any of them
        self.heard = NEVER
        self.lease = 0.0

    def free(self, now: float) -> bool:
        """Whether nobody leads, as far as this node knows, or has its promise."""
        return now - self.heard > self.lease

    def lead(self, said: Lead, now: float) -> Vote:
        """A leader says that it is there."""
        if said.term < self.promised or (said.term == self.promised and self.voted not in ("", said.leader)):
            return self._vote(granted=False)
        if (said.term, said.version) < (self.term, self.version):
            return self._vote(granted=True)  # overtaken by what it has said since
        self.promised = self.term = said.term
        self.version = said.version
        self.voted = self.leader = said.leader
        self.followers = frozenset(said.followers)
        self.place = max(self.place, said.place)
        self.reserved = said.reserved if said.resigned else max(self.reserved, said.reserved)
        self.heard, self.lease = (NEVER if said.resigned else now), said.lease
        return self._vote(granted=True)

    def stand(self, asked: Stand, now: float, present: Callable[[str], bool]) -> Vote:
        """Somebody wants to lead. `present`: whether a sequencer is there, as this node sees it."""
        if asked.term <= self.promised or (not self.free(now) and asked.leader not in (self.voted, self.leader)):
            return self._vote(granted=False)
        close = self.follows_closely(asked.leader, asked.known, asked.knows)
        if not close and any(
            present(each) for each in self.followers | {self.leader} if each not in ("", asked.leader)
        ):
            return self._vote(granted=False)
        self.promised, self.voted = asked.term, asked.leader
        self.heard, self.lease = now, asked.lease
        return self._vote(granted=True, close=close)

    def follows_closely(self, rank: str, known: int, knows: str) -> bool:
        """Whether one that has followed this leader, in this term, could go on from where the last leader was."""
        if known != self.term or not self.term:
            return known >= self.term
        return knows != self.leader or rank in self.followers

    def _vote(self, *, granted: bool, close: bool = True) -> Vote:
        return Vote(granted, self.promised, self.voted, self.place, close, (self.term, self.version), self.reserved)


class Ballots:
    """Of a node. What its sinks have seen is in the fences: a vote says how far that is."""

    def __init__(self, context: Context, peers: Peers, fence: Callable[[str], Fence]) -> None:
        """`fence`: what this node's sinks have had of a channel's order, in whatever terms."""
        self._context, self._peers, self.fence = context, peers, fence
        self._lock = threading.Lock()
        self._of: dict[str, Ballot] = {}
        self.ranks: dict[str, str] = {}  # of this node's own sequencers, by channel

    def of(self, channel: str) -> Ballot:
        with self._lock:
            found = self._of.get(channel)
            if found is None:
                if len(self._of) >= MOST_BALLOTS:
                    raise FederationError(f"expected at most {MOST_BALLOTS:,} channels with sequencers, found more")
                found = self._of[channel] = Ballot()
            return found

    def asked(self, principal: Principal | None, request: Lead | Stand) -> Vote:
        """A sequencer of another node asks for this one's vote: one that may publish the order."""
        decisions = self._context.decisions
        decision = None if principal is None else decisions.decide(principal, "advertise", request.channel + ORDERED)
        if not decision:
            why = "it has not proven who it is" if decision is None else decision.why
            raise FederationError(f"it may not sequence {request.channel}: {why}")
        return self.vote(request)

    def answer(self, opened: Opened, request: Lead | Stand) -> Vote | Accepted:
        """The same as an answer; who asks and may not has committed an offence."""
        try:
            return self.asked(opened.principal, request)
        except FederationError as error:
            self._context.offences.note(opened.sender, str(error))
            return Accepted(error=f"refused: {error}")

    def vote(self, request: Lead | Stand) -> Vote:
        ballot, fence = self.of(request.channel), self.fence(self.key(request.channel))
        with self._lock:
            if isinstance(request, Lead):
                made = ballot.lead(request, monotonic())
            else:
                made = ballot.stand(request, monotonic(), lambda rank: self._present(request.channel, rank))
            return replace(made, place=max(made.place, fence.place))

    def key(self, channel: str) -> str:
        return f"{self._context.network.federation}/{channel}"

    def _present(self, channel: str, rank: str) -> bool:
        return rank == self.ranks.get(channel) or any(rank == each for each, _ in sequencers_of(self._peers, channel))


def sequencers_of(peers: Peers, channel: str) -> list[tuple[str, Peer]]:
    """Those at other nodes that are there, by rank."""
    return [
        (ad.name, peer)
        for peer in peers.everyone()
        if peer.gone is None
        for ad in peer.sources
        if ad.channel == channel + ORDERING and not ad.origin  # not one of another federation
    ]


class Electorate:
    """All nodes that one knows: those that are there, and those that may come back."""

    def __init__(self, context: Context, peers: Peers, ballots: Ballots, dialogue: Dialogue) -> None:
        self._context, self._peers, self._ballots, self._dialogue = context, peers, ballots, dialogue
        self._waiting: set[str] = set()  # whose answer is waited for
        self._pool = ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix=f"headwater-{context.name}-votes")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def poll(self, request: Lead | Stand, timeout: float) -> tuple[bool, list[Vote]]:
        """Ask all for their vote, until enough have granted it, one has refused it, or it is too late: whether enough
        have, and what was said. Who stands gives itself its own vote last: it promises nothing in vain."""
        nodes = self._nodes()
        votes = [] if isinstance(request, Stand) else [self._ballots.vote(request)]
        # Of all, this node included: more than half to be elected, half to lead. Who stands has not voted yet.
        needed = (len(nodes) + 1) // 2 if isinstance(request, Stand) else (len(nodes) + 2) // 2
        asked = {made for peers in nodes.values() for peer in peers if (made := self._submit(peer, request, timeout))}
        end = monotonic() + timeout
        while len(votes) < needed and all(vote.granted for vote in votes):
            done, asked = wait(asked, max(0.0, end - monotonic()), FIRST_COMPLETED)
            if not done:
                break
            votes += [vote for each in done if (vote := each.result()) is not None]
        if isinstance(request, Stand) and len(votes) >= needed and all(vote.granted for vote in votes):
            votes.append(self._ballots.vote(request))
        return len(votes) >= needed and all(vote.granted for vote in votes), votes

    def _nodes(self) -> dict[str, list[Peer]]:
        """By name, of each the one that is there, if it is."""
        keep, now = self._context.network.keep, monotonic()
        found: dict[str, list[Peer]] = {}
        for peer in self._peers.everyone():
            if peer.state is None or (peer.gone is not None and now - peer.gone > keep):
                continue
            there = found.setdefault(peer.name, [])
            if peer.gone is None:
                there[:] = [peer]
        found.pop(self._context.name, None)
        return found

    def _submit(self, peer: Peer, request: Lead | Stand, timeout: float) -> Future[Vote | None] | None:
        """One question at a time to each: those that do not answer do not keep others from being asked."""
        with suppress(RuntimeError):  # it is closed
            if peer.id not in self._waiting:
                self._waiting.add(peer.id)
                return self._pool.submit(self._ask, peer, request, timeout)
        return None

    def _ask(self, peer: Peer, request: Lead | Stand, timeout: float) -> Vote | None:
        try:
            answer = self._dialogue.ask(peer, request, timeout)
        except (FederationError, SecurityError):
            return None
        except Exception as error:
            self._context.node._crashes.note(f"asking {peer.name} for its vote", error)
            return None
        finally:
            self._waiting.discard(peer.id)
        return answer if isinstance(answer, Vote) else None


__all__ = ["Ballot", "Ballots", "Electorate", "sequencers_of"]
