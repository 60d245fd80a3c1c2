"""Wishes of other nodes, judged anew: a policy has changed, or a user is elsewhere.

What follows is put in force at one point of each source, for all nodes at once: no event is judged by a mixture. If a
policy has changed, what waits for those nodes is judged by it too, and what it hides does not leave; whom that concerns
is told. Where somebody is when an event is published decides of that event, so a move concerns later ones only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headwater.channel.routing.wiring import Move
from headwater.errors import HeadwaterError
from headwater.federation.interests.admission import Grant, Refused
from headwater.federation.send.withholding import Judge, Passing, withheld_frames, withhold
from headwater.federation.wire.kinds import GROUP
from headwater.federation.wire.requests import Judged

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.federation.context import Context
    from headwater.federation.control_events import ControlEvents
    from headwater.federation.interests.installer import Installer
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.federation.send.crossing import Crossing
    from headwater.federation.send.lane import Lane

log = logging.getLogger("headwater.federation")

Points = dict[str, dict[str, int]]  # by channel, by source: the last event that was judged as before


class _Change(NamedTuple):
    """Of one crossing: what is granted now, by tag, where that is something else than before."""

    peer: Peer
    crossing: Crossing
    grants: dict[int, Grant]


class Rejudgement:
    """Of one node."""

    def __init__(
        self, context: Context, peers: Peers, installer: Installer, dialogue: Dialogue, control: ControlEvents
    ) -> None:
        self._context, self._peers, self._installer = context, peers, installer
        self._dialogue, self._control = dialogue, control
        self._turn = threading.Lock()  # one at a time, so that the last one has the last word
        self.withheld = 0  # events that waited for other nodes, and did not go

    def policies_changed(self, concerns: Callable[[str], bool]) -> Points:
        """Policies of these channels are others by now: from where on they hold. What waits is judged by them."""
        return self._judge(concerns, None, backlog=True)

    def moved(self, concerns: Callable[[str], bool], user: str) -> Points:
        """A user is elsewhere, which matters for these channels."""
        return self._judge(concerns, user, backlog=False)

    def _judge(self, concerns: Callable[[str], bool], user: str | None, *, backlog: bool) -> Points:
        with self._turn:
            changes = self._changes(concerns, user)
            self._count(changes, 1)
            points = self._put_in_force(concerns, user, changes, backlog=backlog)
        for change in changes:
            self._tell(change)
        return points

    def _changes(
        self,
        concerns: Callable[[str], bool],
        user: str | None,
        wanted: Callable[[Crossing, int, Grant], bool] = lambda crossing, tag, grant: True,
    ) -> list[_Change]:
        """What is granted now, of these wishes. Most of it is found out while sources go on."""
        found = []
        for peer in self._peers.everyone():
            for crossing in list(peer.crossings.values()):
                if not concerns(crossing.channel.name):
                    continue
                grants: dict[int, Grant] = {}
                for tag, before in list(crossing.asked.items()):
                    if (user is None or before.asked.user == user) and wanted(crossing, tag, before):
                        grants[tag] = self._regranted(before, crossing.channel)
                found.append(_Change(peer, crossing, grants))
        return found

    def _catch_up(self, concerns: Callable[[str], bool], user: str | None, changes: list[_Change]) -> None:
        """Add wishes that came in force since the others were judged, and were judged by what held before: whoever
        installs one looks whether that still holds, and it may change then. Both locks are held."""
        by_crossing = {change.crossing: change for change in changes}
        for now in self._changes(concerns, user, self._is_behind(by_crossing)):
            known = by_crossing.get(now.crossing)
            if known is not None:
                known.grants.update(now.grants)
            elif now.grants:
                changes.append(now)
                self._count([now], 1)

    def _is_behind(self, known: dict[Crossing, _Change]) -> Callable[[Crossing, int, Grant], bool]:
        """Says of a wish in force whether neither it nor one of `known` was judged by what holds now."""
        is_current = self._installer.granting.is_current

        def behind(crossing: Crossing, tag: int, grant: Grant) -> bool:
            change = known.get(crossing)
            judged = None if change is None else change.grants.get(tag)
            return (judged is None or judged.asked is not grant.asked) and not is_current(grant)

        return behind

    def _regranted(self, before: Grant, channel: Channel) -> Grant:
        assert before.asked is not None
        granting = self._installer.granting
        try:
            return granting.judge(before.asked, channel)
        except (Refused, HeadwaterError) as error:  # it cannot be said, or not any more: nothing goes
            return granting.nothing(before.asked, channel, str(error))

    def _put_in_force(
        self, concerns: Callable[[str], bool], user: str | None, changes: list[_Change], *, backlog: bool
    ) -> Points:
        """Exchange entries, all at one point of each source; what waits is judged there."""
        installer, wiring = self._installer, self._context.wiring
        points: Points = {}
        with installer.changing(), wiring.lock, ExitStack() as building:
            self._catch_up(concerns, user, changes)
            if backlog:
                installer.part_groups(concerns)
            there = [each for each in changes if each.peer.crossings.get(each.crossing.channel.name) is each.crossing]
            moves: list[Move] = []
            for change in there:
                moves += self._exchange(change)
            channels = {each.crossing.channel: None for each in there}
            channels |= {each: None for each in self._context.node.channels() if concerns(each.name)}
            if backlog:
                for peer in {id(each.peer): each.peer for each in there}.values():
                    building.enter_context(peer.building)

            def at_point() -> None:
                for channel in channels:
                    points[channel.name] = {
                        flow.source.name: flow.source.seq
                        for flow in channel.flows()
                        if flow.source.local and flow.source.channel is channel
                    }
                if backlog:
                    self._withhold(there)

            if moves:
                wiring.move(moves, at_point=at_point)
            else:
                with wiring.still(channels):
                    at_point()
        for peer in {id(each.peer): each.peer for each in there}.values():
            peer.send_soon()
        return points

    def _exchange(self, change: _Change) -> list[Move]:
        """Moves of one crossing's wishes from what was granted to what is granted now."""
        installer, crossing = self._installer, change.crossing
        moves: list[Move] = []
        for tag, grant in list(change.grants.items()):
            before = crossing.asked.get(tag)
            if before is None or before.asked is not grant.asked:
                del change.grants[tag]  # it was withdrawn meanwhile, or asked for anew: that was judged by then
                continue
            if same(before, grant):
                crossing.asked[tag] = grant
                continue
            assert grant.asked is not None
            moves += installer._withdraw(crossing, tag)
            entry = self._context.wiring.entry(crossing.channel, grant.interest, zones=grant.zones)
            moves += installer._grant(crossing, grant.asked.wish, grant, entry, crossing.merged)
        return moves

    # ── what waits ──

    def _withhold(self, changes: list[_Change]) -> None:
        """All sources stand still, and nobody builds frames: what waits is judged by what holds now."""
        for change in changes:
            judge = judge_of(change.crossing)
            by_sid: dict[int, Lane] = {}
            for lane in change.crossing.active():
                withhold(lane, judge)
                by_sid[lane.sid] = lane
            control = change.peer.control
            left = withheld_frames(list(control), partial(_concerned, by_sid, judge))
            control.clear()
            control.extend(left)
            link = change.peer.link
            if judge.withheld and link is not None and link.busy:
                # Some of it may be in what the link has not written yet: that goes with the link.
                self._context.scheduler.later(0.0, partial(link.close, "a policy has changed, and events waited in it"))
            self.withheld += judge.withheld

    # ── who is told ──

    def _tell(self, change: _Change) -> None:
        """Say what has changed to the node that has asked, and as control events here."""
        name = change.crossing.channel.name
        hidden = {tag: grant.hidden for tag, grant in change.grants.items() if grant.hidden}
        shown = [tag for tag, grant in change.grants.items() if not grant.hidden]
        for grant in change.grants.values():
            assert grant.asked is not None
            what = "hidden" if grant.hidden else "judged anew"
            self._control.wish(change.peer, name, grant.asked.wish, what, grant.hidden, grant.text)
        if not change.grants:
            self._count([change], -1)
        elif change.peer.gone is None:
            self._context.scheduler.work(partial(self._say, change, Judged(name, hidden, shown)))

    def _say(self, change: _Change, told: Judged) -> None:
        peer = change.peer
        try:
            self._dialogue.ask(peer, told)
        except HeadwaterError as error:  # an older node, or one that has gone: it is not told, and gets nothing either
            log.info("node %s: %s was not told of a policy: %s", self._context.name, peer.name, error)
        else:
            self._count([change], -1)

    def _count(self, changes: list[_Change], by: int) -> None:
        """Of these, who has asked is to be told; or was."""
        with self._context.wiring.lock:
            for change in changes:
                change.crossing.untold += by


def judge_of(crossing: Crossing) -> Judge:
    """Judges events that wait for a peer by what is granted now."""
    passing: Passing = {}
    made = []
    for tag, grant in crossing.asked.items():
        entry, member = crossing.wishes[tag]
        if grant.hidden:
            continue
        if not member.tag:
            passing.setdefault(0, []).append(entry.interest)
        passing.setdefault(tag, []).append(grant.limit)
        if entry.interest is not None and entry.interest.output is not None:
            made.append(tag)
    return Judge(passing, made)


def same(one: Grant, other: Grant) -> bool:
    """Whether two grants let the same through."""
    mine, theirs = one.interest, other.interest
    if bool(one.hidden) != bool(other.hidden) or (mine is None) != (theirs is None):
        return False
    if mine is None or theirs is None or mine is theirs:
        return True
    return mine.fingerprint == theirs.fingerprint and mine.params == theirs.params


def _concerned(lanes: dict[int, Lane], judge: Judge, sid: int) -> tuple[Lane, Judge] | None:
    lane = lanes.get(sid & ~GROUP)
    return None if lane is None else (lane, judge)


__all__ = ["Points", "Rejudgement"]
