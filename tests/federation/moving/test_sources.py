"""Sources move between nodes of a federation, under publishing: sinks everywhere see one sequence, whole, in order."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Log, Node, Reliable, i64
from headwater.errors import ClosedError, FederationError, HeadwaterError, SubscriptionError
from headwater.security import Rule
from headwater.store.log import ChannelReader
from tests.federation.certified import authority, certified
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see
from tests.federation.nodes import Log as Seen

CHANNEL = "test.count"
DURABLE = Reliable(durable=True)
LISTEN = "tcp/127.0.0.1:0"
ALWAYS = "{ static int seen = 0; seen = seen + 1; return seen > 0; }"
EVERY_FIFTH = "{ static int seen = 0; seen = seen + 1; return seen % 5 == 0; }"
__all__ = ["authority"]


class Count(Event, name="test.Count"):
    n: i64


def place(make: Nodes, name: str, path: Path, *, log: bool = True, **more: Any) -> Node:
    options: dict[str, Any] = {"state": path / f"{name}.state", "listen": LISTEN, **more}
    if log:
        options["log"] = Log(path / f"{name}.log")
    if make.opened:
        options["connect"] = make.opened[0].endpoints[0]
    return make(name, **options)


class Publisher:
    """Publishes numbers that follow on each other, wherever its source is, until it is told to stop."""

    def __init__(self, source: Any) -> None:
        self.source, self.next = source, 0
        self._changed = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._changed.set()
        self._thread.join(GUARD)

    def goes_on_at(self, source: Any) -> None:
        self.source = source
        self._changed.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                assert self.source.publish(Count(self.next)) == self.next + 1
                self.next += 1
            except ClosedError:
                self._changed.wait(GUARD)
                self._changed.clear()
            self._stopped.wait(0.0002)


def numbers(path: Path, name: str) -> list[int]:
    """What a node's own log has of the source."""
    reader = ChannelReader(path / f"{name}.log", CHANNEL)
    return [row["event_seq"] for batch in reader.read() for row in batch.to_pylist()]


def begun(make: Nodes, path: Path, **more: Any) -> tuple[Node, Node, Node, Any]:
    """Two nodes that may have the source, one with sinks, and the source at the first."""
    lab, mill, desk = place(make, "lab", path, **more), place(make, "mill", path, **more), place(make, "desk", path)
    source = lab.channel(CHANNEL, Count).source("s")
    for node in (mill, desk):
        node.channel(CHANNEL, Count)
    make.together()
    return lab, mill, desk, source


@pytest.mark.parametrize("logged", [True, False])
def test_sinks_everywhere_see_one_sequence(logged: bool, tmp_path: Path) -> None:
    """Sinks at the node that it leaves, at the one that it comes to, and at another one; durable, plain, with a filter,
    of derived channels; it goes to and fro while it publishes. In the logs each event is once."""
    seen: dict[str, Seen] = {}
    with nodes() as make:
        lab, mill, desk, source = begun(make, tmp_path, log=logged)

        def sink(name: str, node: Node, where: Any = None, **options: Any) -> None:
            seen[name] = Seen()
            channel = node.channel(CHANNEL, Count)
            if "derived" in name:
                channel = channel.derive(f"{CHANNEL}.{name}", where)
                where = None
            channel.subscribe(seen[name], where, name=name, **options)

        for name, node in (("lab", lab), ("mill", mill), ("desk", desk)):
            sink(name, node)
            sink(f"{name}-third", node, "n % 3 == 0")
            sink(f"{name}-derived-third", node, "n % 3 == 0")
            sink(f"{name}-derived-with-state", node, ALWAYS)
            if logged:
                sink(f"{name}-durable", node, delivery=DURABLE)
                sink(f"{name}-derived-durable", node, "n >= 0", delivery=DURABLE)
        for node in (mill, desk):
            see(node, lab)
            assert node.ready(GUARD)
        places = [lab, mill]
        with Publisher(source) as publisher:
            for number in range(3):
                enough = publisher.next + 50
                eventually(lambda enough=enough: publisher.next >= enough, "it publishes")
                old, moved = publisher.source, places[1 - number % 2].resume_source(publisher.source.move())
                assert moved.name == "s" and moved.type == old.type
                with pytest.raises(ClosedError, match="it has moved to"):
                    old.publish(Count(-1))
                publisher.goes_on_at(moved)
            enough = publisher.next + 50
            eventually(lambda: publisher.next >= enough, "it publishes")
        everything = list(range(publisher.next))
        for name, each in seen.items():
            wanted = everything if "third" not in name else everything[::3]
            each.wait(len(wanted))
            assert each.field("n") == wanted, name
        make.flush()
    if logged:
        found = [numbers(tmp_path, name) for name in ("lab", "mill")]
        assert all(found) and all(each == sorted(each) for each in found)
        assert sorted(found[0] + found[1]) == [n + 1 for n in everything], "each of them once, in one log"


def world(make: Nodes, path: Path) -> tuple[Node, Node, Node]:
    """A hub that stays, and two nodes that may have the source."""
    hub = place(make, "hub", path, log=False)
    lab, mill = place(make, "lab", path), place(make, "mill", path)
    for node in (hub, lab, mill):
        node.channel(CHANNEL, Count)
    make.together()
    return hub, lab, mill


def again(make: Nodes, node: Node, path: Path, name: str, **more: Any) -> Node:
    """A node is started again."""
    node.close()
    make.opened.remove(node)
    made = place(make, name, path, **more)
    made.channel(CHANNEL, Count)
    make.together()
    return made


def publish(source: Any, first: int, last: int) -> None:
    for n in range(first, last):
        assert source.publish(Count(n)) == n + 1


def test_what_counts_goes_on_counting_and_who_comes_late_has_all(tmp_path: Path) -> None:
    """An interest with state, at another node and at the one that the source leaves: as if it had stayed."""
    with nodes() as make:
        hub, lab, mill = world(make, tmp_path)
        source = lab.channel(CHANNEL).source("s")
        there, here = Seen(), Seen()
        hub.channel(CHANNEL).subscribe(there, EVERY_FIFTH)
        lab.channel(CHANNEL).subscribe(here, EVERY_FIFTH)
        see(hub, lab)
        assert hub.ready(GUARD)
        publish(source, 0, 13)
        moved = mill.resume_source(source.move(to="mill"), timeout=GUARD)
        publish(moved, 13, 42)
        wanted = [n for n in range(42) if n % 5 == 4]
        for each in (there, here):
            each.wait(len(wanted))
            assert each.field("n") == wanted
        late = Seen()
        hub.channel(CHANNEL).subscribe(late, "n % 2 == 0", history="all")
        late.wait(21)
        assert late.field("n") == list(range(0, 42, 2))


def test_either_node_may_be_started_again(tmp_path: Path) -> None:
    """The old one does not go on with it, the new one does; a durable sink that was away meanwhile has all of it, also
    what was published at a node that is gone."""
    seen = Seen()
    with nodes() as make:
        _, lab, mill = world(make, tmp_path)
        source = lab.channel(CHANNEL).source("s")
        desk = place(make, "desk", tmp_path, log=False)
        desk.channel(CHANNEL, Count).subscribe(seen, name="mail", delivery=DURABLE)
        see(desk, lab)
        assert desk.ready(GUARD)
        publish(source, 0, 10)
        seen.wait(10)
        desk.close()
        make.opened.remove(desk)
        publish(source, 10, 20)
        token = source.move()
        moved = mill.resume_source(token, timeout=GUARD)
        publish(moved, 20, 30)
        lab = again(make, lab, tmp_path, "lab")
        with pytest.raises(SubscriptionError, match="it has moved to mill"):
            lab.channel(CHANNEL).source("s")
        with pytest.raises(FederationError, match="a source of this node"):
            mill.resume_source(moved.move(), timeout=GUARD)
        lab.close()  # for good
        make.opened.remove(lab)
        mill = again(make, mill, tmp_path, "mill")
        moved = mill.resume_source(token, timeout=GUARD)  # it is its own; channel.source("s") would do
        assert moved.seq == 30 and moved is mill.resume_source(token)
        desk = place(make, "desk", tmp_path, log=False)
        desk.channel(CHANNEL, Count).subscribe(seen, name="mail", delivery=DURABLE)
        see(desk, mill)
        publish(moved, 30, 40)
        seen.wait(40)
        assert seen.field("n") == list(range(40))


@pytest.mark.parametrize("moves", [1, 3])
@pytest.mark.parametrize("alone", [False, True])
def test_a_sink_that_comes_back_after_the_source_has_left_has_what_it_missed(
    moves: int, alone: bool, tmp_path: Path
) -> None:
    """The node of both is started again, and the source publishes there, and moves, before a durable sink is back:
    others there have had by then what it has not."""
    seen = Seen()
    with nodes() as make:
        _, lab, mill = world(make, tmp_path)
        source = lab.channel(CHANNEL).source("s")
        for place in (mill, lab)[: moves - 1]:  # to and fro
            source = place.resume_source(source.move(), timeout=GUARD)
        lab.channel(CHANNEL).subscribe(seen, name="late", delivery=DURABLE)
        publish(source, 0, 10)
        seen.wait(10)
        lab = again(make, lab, tmp_path, "lab")
        source = lab.channel(CHANNEL).source("s")
        if not alone:
            lab.channel(CHANNEL).subscribe(Seen(), name="early", delivery=DURABLE)
        publish(source, 10, 20)
        see(mill, lab)
        moved = mill.resume_source(source.move(), timeout=GUARD)
        publish(moved, 20, 30)
        lab.channel(CHANNEL).subscribe(seen, name="late", delivery=DURABLE)
        publish(moved, 30, 40)
        seen.wait(40)
        assert seen.field("n") == list(range(40))


def test_who_resumes_it_waits_for_a_program_that_was_started_again(tmp_path: Path) -> None:
    """The old node is back, with its state and log, and has not made the source yet."""
    with nodes() as make:
        _, lab, mill = world(make, tmp_path)
        source = lab.channel(CHANNEL).source("s")
        publish(source, 0, 10)
        token = source.move()
        lab = again(make, lab, tmp_path, "lab")
        asked, done = threading.Event(), list[Any]()
        not_open = lab._moving_sources._not_open  # type: ignore[union-attr]

        def noted(*given: Any) -> Any:
            asked.set()
            return not_open(*given)

        lab._moving_sources._not_open = noted  # type: ignore[union-attr, method-assign]
        resuming = threading.Thread(target=lambda: done.append(mill.resume_source(token, timeout=GUARD)))
        resuming.start()
        assert asked.wait(GUARD)
        assert not done and lab.channel(CHANNEL).source("s").seq == 10
        resuming.join(GUARD)
        publish(done[0], 10, 20)


def test_one_that_waits_for_its_node_keeps_no_other_back(tmp_path: Path) -> None:
    """The node of one source is away; others of other channels, and of the same one, come here meanwhile."""
    with nodes() as make:
        _, lab, mill = world(make, tmp_path)
        away = place(make, "away", tmp_path)
        waits = [away.channel(name, Count).source("w") for name in (CHANNEL, "test.other")]
        make.together()
        tokens = [source.move() for source in waits]
        away.close()
        make.opened.remove(away)
        ended = list[Exception]()

        def resume(token: str) -> None:
            try:
                mill.resume_source(token, timeout=GUARD)
            except FederationError as error:
                ended.append(error)

        threads = [threading.Thread(target=resume, args=(token,)) for token in tokens]
        for thread in threads:
            thread.start()
        for name in ("s", "t"):
            source = lab.channel(CHANNEL).source(name)
            publish(source, 0, 10)
            publish(mill.resume_source(source.move(), timeout=GUARD), 10, 20)
        assert not ended and all(thread.is_alive() for thread in threads)
        away = place(make, "away", tmp_path)
        for name in (CHANNEL, "test.other"):
            away.channel(name, Count).source("w")
        for thread in threads:
            thread.join(GUARD)
        assert not ended


@pytest.mark.parametrize("logged", [True, False])
def test_a_power_cut_after_it_has_published_here_does_not_make_it_another(logged: bool, tmp_path: Path) -> None:
    """What was written last is not in the state that is found again: that it has come here. It is claimed, and the same
    token brings it; by its name it is not made, for it would be another one. In the log it goes on after its last."""
    seen = Seen()
    with nodes() as make:
        hub = place(make, "hub", tmp_path, log=False)
        lab, mill = (place(make, name, tmp_path, log=logged) for name in ("lab", "mill"))
        for node in (hub, lab, mill):
            node.channel(CHANNEL, Count)
        make.together()
        source = lab.channel(CHANNEL).source("s")
        hub.channel(CHANNEL).subscribe(seen)
        see(hub, lab)
        assert hub.ready(GUARD)
        publish(source, 0, 10)
        register = mill._moving_sources.register  # type: ignore[union-attr]
        take = register.take

        def taking(*given: Any) -> None:
            for each in tmp_path.glob("mill.state*"):
                shutil.copy(each, tmp_path / f"then.{each.name}")
            take(*given)

        register.take = taking  # type: ignore[method-assign]
        token = source.move()
        publish(mill.resume_source(token, timeout=GUARD), 10, 20)
        seen.wait(20)
        mill.close()
        make.opened.remove(mill)
        for each in tmp_path.glob("mill.state*"):
            each.unlink()
        for each in tmp_path.glob("then.*"):
            each.rename(tmp_path / each.name.removeprefix("then."))
        mill = place(make, "mill", tmp_path, log=logged)
        make.together()
        with pytest.raises(SubscriptionError, match="resume_source with the same token goes on with it"):
            mill.channel(CHANNEL, Count).source("s")
        back = mill.resume_source(token, timeout=GUARD)
        if logged:
            see(hub, mill)
            publish(back, 20, 30)
            seen.wait(30)
            assert seen.field("n") == list(range(30))


def test_a_claim_that_was_refused_leaves_the_name_free(tmp_path: Path) -> None:
    with nodes() as make:
        _, lab, mill = world(make, tmp_path)
        source = lab.channel(CHANNEL).source("s")
        token = source.move()
        claims = mill._moving_sources.register.claims  # type: ignore[union-attr]

        def overtaken(*given: Any) -> None:
            claims(*given)
            source.move()  # another token: the first one is worth nothing

        mill._moving_sources.register.claims = overtaken  # type: ignore[union-attr, method-assign]
        with pytest.raises(FederationError, match="another token was made since"):
            mill.resume_source(token, timeout=GUARD)
        assert mill.channel(CHANNEL).source("s").publish(Count(0)) == 1


@pytest.mark.parametrize(
    "wrong", [{"every": -1.0, "ask": list}, {"every": 1.0}, {"ask": 5}, {"rate": "x"}, {"evry": 1.0}]
)
def test_wrong_options_leave_it_where_it_is(wrong: dict[str, Any], tmp_path: Path) -> None:
    """They are looked at before it is claimed: nobody would publish else."""
    with nodes() as make:
        _, mill, _, source = begun(make, tmp_path)
        token = source.move()
        with pytest.raises(HeadwaterError, match="resume_source: "):
            mill.resume_source(token, timeout=GUARD, **wrong)
        assert source.publish(Count(0)) == 1
        assert mill.resume_source(token, timeout=GUARD).publish(Count(1)) == 2


def test_who_wants_nothing_more_while_it_is_claimed_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a log: the old node waits for a sink that is slow; that ends, and so does its node's interest."""
    slow, go = threading.Event(), threading.Event()

    def handler(event: Count) -> None:
        slow.set()
        go.wait(GUARD)

    with nodes() as make:
        _, mill, desk, source = begun(make, tmp_path, log=False)
        sink = desk.channel(CHANNEL, Count).subscribe(handler)
        make.ready()
        source.publish(Count(0))
        assert slow.wait(GUARD)
        made: list[Any] = []
        moving = threading.Thread(target=lambda: made.append(mill.resume_source(source.move(), timeout=20.0)))
        moving.start()
        eventually(lambda: source.moved_to is not None, "it is about to leave")
        sink.cancel()
        go.set()
        moving.join(GUARD)
        assert made[0].publish(Count(1)) == 2
    assert "not all that had its events" not in caplog.text


def test_who_wants_nothing_more_once_it_is_claimed_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a log: its only sink ends after the old node has named it, and before it hears of the new one."""
    with nodes() as make:
        _, mill, desk, source = begun(make, tmp_path, log=False)
        sink = desk.channel(CHANNEL, Count).subscribe(print)
        make.ready()
        make_source = type(mill.channel(CHANNEL)).source

        def made_late(channel: Any, *names: Any, **options: Any) -> Any:
            sink.cancel()
            return make_source(channel, *names, **options)

        monkeypatch.setattr(type(mill.channel(CHANNEL)), "source", made_late)
        made: list[Any] = []
        moving = threading.Thread(target=lambda: made.append(mill.resume_source(source.move(), timeout=10 * GUARD)))
        moving.start()
        moving.join(GUARD)
        assert made and made[0].publish(Count(1)) == 1
    assert "not all that had its events" not in caplog.text


def test_who_may_not_have_it_where_it_goes_is_not_waited_for(
    authority: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a log: the new node's rules refuse one that had its events."""
    with nodes() as make:

        def at(name: str, *rules: Rule) -> Node:
            security = certified(authority, name, (*rules, Rule("**", "*")))
            return place(make, name, tmp_path, log=False, security=security, listen="tls/127.0.0.1:0")

        lab, desk = at("lab"), at("desk", Rule(CHANNEL, "guest", may=("advertise",)))
        source, seen = lab.channel(CHANNEL, Count).source("s"), Seen()
        guest = at("guest")
        make.together()
        guest.channel(CHANNEL, Count).subscribe(seen)
        make.ready()
        source.publish(Count(0))
        seen.wait(1)
        assert desk.resume_source(source.move(), timeout=20.0).publish(Count(1)) == 2
    assert "not all that had its events" not in caplog.text
