"""A channel that only a subscriber has declared is known to others, with its type: to those who may have sources of
it, for what sinks want is nobody else's business."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import Event, Node, f64
from headwater.errors import ChannelError
from headwater.security import Rule
from tests.federation.certified import EVERYTHING, joined
from tests.federation.nodes import GUARD, Log, Nodes, nodes

NAME = "ie.tcd.level"


class Level(Event, name="ie.tcd.Level"):
    level: f64


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def known(node: Node, name: str = NAME, *, there: bool = True) -> bool:
    return node.until(lambda: node.has_channel(name) is there, GUARD)


def caught_up(node: Node, other: Node) -> bool:
    """Everything that another node has to say has come."""
    assert node._engine is not None and other._engine is not None
    engine, version = node._engine, other._engine.membership.latest()
    assert node.until(lambda: engine.peers.get(other.id) is not None, GUARD)
    peer = engine.peers[other.id]
    return node.until(lambda: peer.state is not None and peer.state.version >= version, GUARD)


def test_a_source_takes_the_type_from_a_sink_that_was_there_before(make: Nodes) -> None:
    desk, lab = make("desk"), make("lab")
    got = Log()
    desk.channel(NAME, Level).subscribe(got, "level > 0.5")
    assert known(lab)
    channel = lab.channel(NAME)
    assert channel.type is not None and channel.type == desk.channel(NAME).type
    source = channel.source()
    make.ready()
    source.publish(level=0.25)
    source.publish(level=0.75)
    assert got.wait(1) == [Level(0.75)]


def test_it_is_known_while_it_is_wanted(make: Nodes) -> None:
    desk, lab, other = make("desk"), make("lab"), make("other")
    desk.channel(NAME, Level)  # nobody wants it yet
    make.together()
    assert caught_up(lab, desk) and not lab.has_channel(NAME)
    sinks = [desk.channel(NAME).subscribe(), desk.channel(NAME).subscribe()]
    assert known(lab)
    sinks[0].cancel()
    assert caught_up(lab, desk) and lab.has_channel(NAME)
    source = desk.channel(NAME).source()
    assert lab.until(lambda: bool(lab.remote_sources(NAME)), GUARD)
    source.close()
    assert lab.until(lambda: not lab.remote_sources(NAME), GUARD) and known(lab)
    sinks[1].cancel()
    assert known(lab, there=False) and known(other, there=False)


def test_others_have_it_from_those_with_sources_while_there_are_some(make: Nodes) -> None:
    """So that a sink costs no messages where there is something for it."""
    other, lab, desk = make("other"), make("lab"), make("desk")
    source = lab.channel(NAME, Level).source()
    make.together()
    make.ready()
    sink = desk.channel(NAME, Level).subscribe()
    assert desk._engine is not None and desk.ready(GUARD) and caught_up(other, desk)
    description = desk._engine.membership.description

    def tells(names: set[str]) -> bool:
        return desk.until(lambda: set(description.told[0]) == names, GUARD)

    assert tells(set())
    source.close()
    lab.channel(NAME).close()
    assert tells({NAME}) and known(other)
    lab.channel(NAME, Level).source()
    assert tells(set()) and other.until(lambda: bool(other.remote_sources(NAME)), GUARD)
    lab.close()  # and so it is if the node leaves
    assert tells({NAME})
    sink.cancel()
    assert tells(set())


def test_what_was_taken_over_from_another_node_is_not_told_again(make: Nodes) -> None:
    desk, lab, other = make("desk"), make("lab"), make("other")
    sink = desk.channel(NAME, Level).subscribe()
    assert known(lab)
    taken = lab.channel(NAME).subscribe()
    sink.cancel()
    desk.channel(NAME).close()
    assert known(other, there=False) and caught_up(other, lab) and not other.has_channel(NAME)
    lab.channel(NAME, Level)  # now it has been declared here, too
    taken.cancel()
    lab.channel(NAME).subscribe()
    assert known(other)


def test_patterns_take_over_only_what_has_sources(make: Nodes) -> None:
    desk, eye = make("desk"), make("eye")
    got = Log()
    eye.subscribe("ie.**", got)
    desk.channel(NAME, Level).subscribe()
    assert known(eye) and eye.ready(GUARD)
    assert [channel.name for channel in eye.channels("ie.**")] == []
    source = desk.channel(NAME).source()
    assert eye.until(lambda: len(eye.channels("ie.**")) == 1, GUARD)
    make.ready()
    source.publish(level=0.5)
    assert got.wait(1)[0].level == 0.5
    lab = make("lab")
    make.together()
    assert caught_up(lab, eye)
    engine = lab._engine
    assert engine is not None
    assert engine.peers[eye.id].channel(NAME) is None  # it wants whatever there is, and has declared nothing


def test_those_who_may_not_advertise_are_not_told(make: Nodes, authority: Path) -> None:
    rules = (Rule("ie.**", "lab", may=("advertise",)), Rule("ie.**", "guest", may=("subscribe",)), Rule("a.**", "*"))
    desk = joined(make, authority, "desk", rules)
    lab, guest, other = (joined(make, authority, name, EVERYTHING) for name in ("lab", "guest", "other"))
    make.together()
    sink = desk.channel(NAME, Level).subscribe()
    assert known(lab) and lab.channel(NAME).type is not None
    for node in (guest, other):
        assert caught_up(node, desk) and not node.has_channel(NAME)
        with pytest.raises(ChannelError, match="found none"):
            node.channel(NAME)
    # With a source of its own it is there for those who may subscribe, and without it is gone for them.
    source = desk.channel(NAME).source()
    assert known(guest)
    source.close()
    assert known(guest, there=False) and caught_up(other, desk) and not other.has_channel(NAME)
    sink.cancel()
    desk.channel("ie.tcd.more", Level).subscribe()
    assert known(lab, "ie.tcd.more") and caught_up(guest, desk)
    state = guest._engine.peers[desk.id].state  # type: ignore[union-attr]
    assert state is not None and not state.channels and not guest.has_channel("ie.tcd.more")


def test_what_one_says_of_channels_on_which_it_may_do_nothing_is_not_taken(make: Nodes, authority: Path) -> None:
    lab = joined(make, authority, "lab", (Rule("open.**", "*"),))
    guest = joined(make, authority, "guest", EVERYTHING)
    make.together()
    guest.channel(NAME, Level).subscribe()
    guest.channel("open.weather", Level).subscribe()
    assert known(lab, "open.weather") and caught_up(lab, guest) and not lab.has_channel(NAME)


def test_a_refused_sink_is_told_so_by_a_node_whose_sinks_want_the_channel_too(make: Nodes, authority: Path) -> None:
    desk = joined(make, authority, "desk", (Rule("ie.**", "lab", may=("advertise",)),))
    lab = joined(make, authority, "lab", EVERYTHING)
    make.together()
    desk.channel(NAME, Level).subscribe()
    assert known(lab)
    sink = lab.channel(NAME).subscribe()
    assert lab.until(lambda: f"{NAME}@desk" in sink.refused, GUARD)
