"""Interests that read the context of sources at other nodes: judged there, by what holds there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Interest, Node, Reliable
from headwater import Log as Logged
from headwater.contextual import KIND, interest_with_context
from headwater.federation.network import Network
from headwater.federation.wire.requests import Install, Wish
from headwater.security import Deny, Restrict
from headwater.types import event_type
from headwater.types.model import F64, I64, Array, Field, Record
from tests.federation.nodes import GUARD, Log, Nodes, nodes, see
from tests.federation.objects.plant import Rights

CHANNEL = "hall.readings"


class Reading(Event, name="hall.Reading"):
    number: int
    level: float = 0.0


class Oven(Event):
    gain: float
    mode: str | None = None


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def lab_and_desk(make: Nodes, **options: Any) -> tuple[Node, Node, Any, Any]:
    lab = make("lab", listen="tcp/127.0.0.1:0", **options)
    oven = lab.channel(CHANNEL, Reading).source("oven", context=Oven(gain=5.0))
    desk = make("desk")
    make.together()
    see(desk, lab)
    return lab, desk, oven, desk.channel(CHANNEL, Reading, context="gain: f64, mode: text")


def test_it_is_judged_at_the_source_and_only_what_passes_crosses(make: Nodes) -> None:
    lab, desk, oven, channel = lab_and_desk(make)
    over, mode, wide, own = Log(), Log(), Log(), Log()
    sink = channel.subscribe(over, "number > context.gain")
    channel.subscribe(mode, "context.mode = 'max' or number = 1")
    lab.channel(CHANNEL).subscribe(own, "number > context.gain")
    silent = desk.channel(CHANNEL).source("silent")  # of this node, and without a context
    make.ready(desk)
    for number in range(10):
        if number == 7:
            assert oven.context.set(gain=8.0, mode="max") == 7
        oven.publish(number=number)
        silent.publish(number=number)
    over.wait(2)
    mode.wait(5)
    make.flush()
    assert over.field("number") == own.field("number") == [6, 9]
    assert sorted(mode.field("number")) == [1, 1, 7, 8, 9]
    assert sum(each.crossed for each in desk.remote_counts(sink)) <= 2 + 4
    counts = sink.counts
    assert counts.evaluated == counts.passed + counts.rejected + counts.undecided and counts.undecided == 10
    channel.subscribe(wide)  # all of it crosses from now on: what the first passes is still what passes there
    make.ready(desk)
    oven.context.set(gain=100.0)
    oven.publish(number=50)
    oven.publish(number=150)
    wide.wait(2)
    over.wait(3)
    assert over.field("number") == [6, 9, 150]


@pytest.mark.parametrize("placement", ["destination", "auto"])
def test_it_runs_at_the_source_wherever_others_are_placed(make: Nodes, placement: str) -> None:
    lab = make("lab", network=Network(listen="tcp/127.0.0.1:0"))
    oven = lab.channel(CHANNEL, Reading).source("oven", context=Oven(gain=5.0))
    desk = make("desk", network=Network(connect=lab.endpoints[0], placement=placement))
    make.together()
    channel, over, high = desk.channel(CHANNEL, Reading, context=Oven), Log(), Log()
    channel.subscribe(over, "number > context.gain")
    channel.subscribe(high, "number > 2")
    make.ready(desk)
    for number in range(10):
        oven.publish(number=number)
    high.wait(7)
    over.wait(4)
    make.flush()
    assert over.field("number") == [6, 7, 8, 9]


def test_other_types_are_missing_and_narrower_ones_are_read(make: Nodes) -> None:
    lab = make("lab")
    declared = lab.channel(CHANNEL, Reading, context="gain: i32, mode: i64")
    source = declared.source("s", context={"gain": 3, "mode": 1})
    desk = make("desk")
    make.together()
    channel, over, mode = desk.channel(CHANNEL, Reading, context="gain: f64, mode: text, more: bool"), Log(), Log()
    channel.subscribe(over, "number > context.gain")
    channel.subscribe(mode, "context.mode is null and context.more is null and number > 3")
    make.ready(desk)
    for number in range(6):
        source.publish(number=number)
    over.wait(2)
    mode.wait(2)
    assert over.field("number") == mode.field("number") == [4, 5]


def test_what_was_missed_is_judged_by_what_the_context_was(make: Nodes, tmp_path: Path) -> None:
    """A durable sink is away while the context changes: what it is sent from the log is what it would have had."""
    lab = make("lab", listen="tcp/127.0.0.1:0", log=Logged(tmp_path / "log"))
    oven = lab.channel(CHANNEL, Reading, context=Oven).source("oven", context=Oven(gain=3.0))
    assert oven.context is not None

    def desk() -> tuple[Node, Log]:
        node = make("desk", connect=lab.endpoints[0], listen="tcp/127.0.0.1:0", state=tmp_path / "state")
        heard = Log()
        node.channel(CHANNEL, Reading, context=Oven).subscribe(
            heard, "number % 10 > context.gain", name="kept", delivery=Reliable(durable=True)
        )
        see(node, lab)
        assert node.ready(GUARD)
        return node, heard

    first, heard = desk()
    oven.publish(number=4)
    heard.wait(1)
    first.close()
    expected = []
    for number in range(5, 300):
        gain = number // 25 % 10
        oven.context.set(gain=float(gain))
        oven.publish(number=number)
        expected += [number] if number % 10 > gain else []
    oven.context.set(gain=0.0)
    _, heard = desk()
    oven.publish(number=301)
    heard.wait(len(expected) + 1)
    assert heard.field("number") == [*expected, 301]


def test_who_may_not_install_reads_no_context_and_a_restriction_holds(make: Nodes) -> None:
    rights = Rights()
    rights.no[("subscribe", CHANNEL)] = Restrict(Interest("number <> 8", Reading), "eight is secret")
    _, desk, oven, channel = lab_and_desk(make, security={"policy": rights})
    over = Log()
    channel.subscribe(over, "number > context.gain")
    make.ready(desk)
    for number in range(10):
        oven.publish(number=number)
    over.wait(3)
    make.flush()
    assert over.field("number") == [6, 7, 9]
    rights.no[("install", CHANNEL)] = Deny("no code")
    eve, told = make("eve"), Log()
    make.together()
    sink = eve.channel(CHANNEL, Reading, context=Oven).subscribe(told, "number > context.gain")
    make.ready(eve)
    oven.publish(number=20)
    over.wait(4)
    make.flush()
    assert told.events == []
    assert "no code" in str(sink.refused)


def test_what_is_sent_in_bad_faith_is_refused(make: Nodes) -> None:
    lab, desk, _, _ = lab_and_desk(make, security={"policy": Rights()})
    channel = desk.channel(CHANNEL)
    assert channel.type is not None and channel.context is not None and desk._engine is not None
    good = interest_with_context("number > context.gain", channel.type, channel.context)
    deep = event_type(
        Record("Deep", (Field("number", I64), Field("context", Record("C", (Field("at", Array(F64, (2,))),)))))
    )
    wishes = [
        (Wish(1, good.dumps(), kind=KIND), "must come with a tag"),
        (Wish(2, Interest("number > 5", Reading).dumps(), tagged=True, kind=KIND), "that reads a context"),
        (Wish(3, Interest("context.at[0] > 5", deep).dumps(), tagged=True, kind=KIND), "expected a number"),
        (Wish(4, good.dumps()[:-7], tagged=True, kind=KIND), ""),
        (Wish(5, b"\xc1", tagged=True, kind=KIND), ""),
        (Wish(6, good.dumps(), tagged=True, kind="pattern with context"), "kind"),
    ]
    request = Install(CHANNEL, 1000, [wish for wish, _ in wishes])
    answer = desk._engine.dialogue.ask(desk._engine.peers[lab.id], request)
    for wish, text in wishes:
        assert text in answer.refused[wish.tag], answer.refused
