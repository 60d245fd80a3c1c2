"""Sources in the wrong hands: tokens that are stolen, used, forged or too old, and nodes that say to have a source."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import Event, Log, Node, i64
from headwater.errors import ChannelError, ClosedError, FederationError, HeadwaterError, SubscriptionError, Unreachable
from headwater.federation.arrive.deeds import Deeds
from headwater.federation.moving.source_past import append_page
from headwater.federation.security.signed_document import sign
from headwater.federation.wire.source_move_requests import ClaimSource, FetchPast
from headwater.interest import as_event_type
from headwater.security import Rule
from headwater.store.log import ChannelReader
from headwater.store.log.handed_past import HandedPast
from headwater.testing import ManualClock
from tests.federation.certified import authority, certified
from tests.federation.moving.test_tokens import closed, opened
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see
from tests.federation.nodes import Log as Seen

CHANNEL = "test.count"
LISTEN = "tcp/127.0.0.1:0"
__all__ = ["authority"]


class Count(Event, name="test.Count"):
    n: i64


def logged(make: Nodes, name: str, path: Path, **more: Any) -> Node:
    options = {"log": Log(path / f"{name}.log"), "state": ":memory:", **more}
    if "listen" not in options:
        options["listen"] = LISTEN
    if make.opened:
        options["connect"] = make.opened[0].endpoints[0]
    return make(name, **options)


NOW = pa.array([0], pa.timestamp("us", tz="UTC"))


@pytest.mark.parametrize(
    "columns",
    [
        {"event_seq": pa.array(["1"]), "event_time": NOW},
        {"event_seq": pa.array([None], pa.int64()), "event_time": NOW},
        {"event_seq": pa.array([1])},
        {"event_seq": pa.array([1]), "event_time": pa.array(["now"])},
        {"event_seq": pa.array([1]), "event_time": pa.array([None], NOW.type)},
        {"event_seq": pa.array([7]), "event_time": NOW},
    ],
)
def test_a_past_that_is_none_is_refused_and_not_written(tmp_path: Path, columns: dict[str, Any]) -> None:
    batch, made = pa.record_batch({**columns, "n": pa.array([1], pa.int64())}), pa.BufferOutputStream()
    with pa.ipc.new_stream(made, batch.schema) as stream:
        stream.write_batch(batch)
    past = HandedPast(Log(tmp_path), "lab")
    with pytest.raises(FederationError, match="resume_source: expected"), past.opened("c", as_event_type(Count)) as log:
        append_page(log, "key", made.getvalue().to_pybytes(), 0, 5)
    with past.opened("c", as_event_type(Count)) as log:
        assert log.last("key") == 0
    past.stop()


def of_source(token: str) -> str:
    return "hwm1." + token.removeprefix("hws1.")


def test_one_of_those_who_show_it_at_the_same_time_has_it(tmp_path: Path) -> None:
    """And the others are told who; the same one is given it again."""
    with nodes() as make:
        lab, *others = [logged(make, name, tmp_path) for name in ("lab", "a", "b")]
        make.together()
        source = lab.channel(CHANNEL, Count).source("s")
        source.publish(Count(0))
        token, start = source.move(), threading.Barrier(2)
        made: dict[str, Any] = {}

        def take(node: Node) -> None:
            start.wait(GUARD)
            try:
                made[node.name] = node.resume_source(token, timeout=GUARD)
            except HeadwaterError as error:
                made[node.name] = error

        threads = [threading.Thread(target=take, args=(node,)) for node in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GUARD)
        [winner] = [name for name, each in made.items() if not isinstance(each, Exception)]
        [loser] = [name for name in made if name != winner]
        assert isinstance(made[loser], FederationError) and f"{winner} goes on with 's'" in str(made[loser])
        assert made[winner].publish(Count(1)) == 2
        with pytest.raises(ClosedError, match=f"it has moved to {winner}"):
            source.publish(Count(1))
        assert make.opened[1 + (winner == "b")].resume_source(token) is made[winner]
        assert lab.report().services["moving sources"]["moved"] == {f"{CHANNEL}/s": winner}
        with pytest.raises(HeadwaterError, match="it has moved to"):
            source.move()


def test_it_is_for_whom_it_was_made_for_and_who_may_advertise(authority: Path, tmp_path: Path) -> None:
    with nodes() as make:

        def at(name: str, *rules: Rule) -> Node:
            security = certified(authority, name, rules or (Rule("**", "*"),))
            return logged(make, name, tmp_path, security=security, listen="tls/127.0.0.1:0")

        lab = at("lab", Rule(CHANNEL, "reader", may=("subscribe",)), Rule("**", "*"))
        desk, guest, reader = at("desk"), at("guest"), at("reader")
        make.together(lab, desk, guest, reader)
        source = lab.channel(CHANNEL, Count).source("s")
        source.publish(Count(0))
        token = source.move(to="desk")
        with pytest.raises(FederationError, match=r"for desk, and not for \"guest\""):
            guest.resume_source(token, timeout=GUARD)
        anyone = source.move()
        with pytest.raises(FederationError, match="another token was made since"):
            desk.resume_source(token, timeout=GUARD)
        with pytest.raises(FederationError, match="may not advertise"):
            reader.resume_source(anyone, timeout=GUARD)
        assert source.publish(Count(1)) == 2, "nothing has changed"
        seen = Seen()
        reader.channel(CHANNEL, Count).subscribe(seen)
        see(reader, lab)
        assert reader.ready(GUARD)
        moved = guest.resume_source(anyone, timeout=GUARD)  # what it was given it shows to everybody
        moved.publish(Count(2))
        seen.wait(1)
        assert moved.seq == 3 and lab.report().services["moving sources"]["refused"] == 3


def test_bad_tokens_and_what_cannot_move(tmp_path: Path) -> None:
    with nodes() as make:
        lab, mill = logged(make, "lab", tmp_path), logged(make, "mill", tmp_path)
        bare = make("bare", connect=lab.endpoints[0])
        plain = make("plain", connect=lab.endpoints[0], state=":memory:")
        make.together()
        source = lab.channel(CHANNEL, Count).source("s")
        for wrong in ({"lasts": 0}, {"lasts": "soon"}, {"lasts": 1e8}, {"to": 7}, {"to": ""}, {"to": "user:"}):
            with pytest.raises(SubscriptionError, match="move: "):
                source.move(**wrong)
        with pytest.raises(SubscriptionError, match="found both"):
            source.move("hall", to="mill")
        late = source.move(lasts=1e-6)
        with pytest.raises(
            FederationError, match=r"^resume_source: 's': node lab: .*token has expired; 's' goes on where it was"
        ):
            mill.resume_source(late, timeout=GUARD)
        token = source.move()
        mallory = mill._engine.context.keyring.credentials.identity
        document = opened(of_source(token)).document
        forged = sign(mallory, document.federation, "source-move", "s", 1, document.body)
        with pytest.raises(FederationError, match="signed by mill"):
            mill.resume_source("hws1." + closed(forged).removeprefix("hwm1."), timeout=GUARD)
        for nothing in (None, 7, "", "hws1.", "hws1.!", of_source(token), token[:-20]):
            with pytest.raises(FederationError):
                mill.resume_source(nothing, timeout=GUARD)  # type: ignore[arg-type]
        with pytest.raises(FederationError):
            mill.resume(token, print)
        peer = next(each for each in mill._engine.everyone() if each.name == "lab")
        for request in (ClaimSource(bytes(32), bytes(16)), FetchPast(bytes(32), 0)):
            with pytest.raises(FederationError, match="never made here"):
                mill._engine.dialogue.ask(peer, request, GUARD)
        with pytest.raises(SubscriptionError, match="a node with state"):
            bare.resume_source(token, timeout=GUARD)
        with pytest.raises(SubscriptionError, match="a node with state"):
            bare.channel("test.other", Count).source("s").move()
        with pytest.raises(FederationError, match="found one where the source is and none here; give this node one"):
            plain.resume_source(token, timeout=GUARD)
        unlogged = plain.channel("test.unlogged", Count).source("s").move()
        with pytest.raises(FederationError, match="found one here and none where the source is; log the channel there"):
            mill.resume_source(unlogged, timeout=GUARD)
        with pytest.raises(SubscriptionError, match="name: a source that moves has the one that it had"):
            mill.resume_source(token, name="other")
        namesake = mill.channel(CHANNEL, Count).source("s")
        with pytest.raises(ChannelError, match="expected a name that no source"):
            mill.resume_source(token, timeout=GUARD)
        namesake.publish(Count(0))
        namesake.close()
        with pytest.raises(FederationError, match="has events of another one of that name"):
            mill.resume_source(token, timeout=GUARD)
        derived = lab.channel(CHANNEL).derive("test.count.even", "n % 2 == 0")
        with pytest.raises(HeadwaterError):
            derived.source("d").move()
        assert source.publish(Count(0)) == 1
        source.close()
        with pytest.raises(ClosedError, match="it was closed"):
            source.move()
        other = logged(make, "other", tmp_path)
        make.together()
        with pytest.raises(Unreachable, match="is not open there; try again with the same token"):
            other.resume_source(token, timeout=0.5)
        with Node("alone", state=":memory:") as alone:
            with pytest.raises(SubscriptionError, match="without a network"):
                alone.channel(CHANNEL, Count).source("s").move()
            with pytest.raises(FederationError, match="no network"):
                alone.resume_source(token)


def test_who_shows_it_where_it_was_is_told_where_it_is(tmp_path: Path) -> None:
    with nodes() as make:
        lab, mill = logged(make, "lab", tmp_path), logged(make, "mill", tmp_path)
        make.together()
        token = lab.channel(CHANNEL, Count).source("s").move()
        with pytest.raises(FederationError, match="'s' is a source of this node: publish at it"):
            lab.resume_source(token, timeout=GUARD)
        moved = mill.resume_source(f" {token}\n", timeout=GUARD)  # as it comes out of a file, or a mail
        with pytest.raises(FederationError, match=r"'s' .*it has moved to mill, and goes on there; have it moved back"):
            lab.resume_source(token, timeout=GUARD)
        assert mill.resume_source(token, timeout=GUARD) is moved
        assert mill.report().services["moving sources"]["came"] == 1


def test_who_only_says_to_have_it_is_not_heard(tmp_path: Path) -> None:
    """A node that may advertise says that another one's source has moved there: without a deed, or with one of its own.
    Sinks go on with the source, and hear nothing of that node."""
    with nodes() as make:
        lab, mallory, desk = [logged(make, name, tmp_path) for name in ("lab", "mallory", "desk")]
        source, seen = lab.channel(CHANNEL, Count).source("s"), Seen()
        desk.channel(CHANNEL, Count).subscribe(seen)
        make.together()
        see(desk, lab)
        assert desk.ready(GUARD)
        source.publish(Count(0))
        seen.wait(1)
        home = f"log/lab/{source.log.id}/s"
        place = mallory._moving_sources.place
        for deeds in ((), (Deeds(mallory._engine.context).sign(home, 1, "mallory"),), (b"nothing",)):

            def says(made: Any, deeds: tuple[bytes, ...] = deeds) -> None:
                place(made)
                if made.channel.name == CHANNEL:
                    made.home, made.term, made.deeds = home, 7, deeds

            mallory._moving_sources.place = says
            before = desk.federation_report().offences.get(mallory.id, 0)
            bad = mallory.channel(CHANNEL, Count).source("s")
            bad.publish(Count(-1))
            eventually(lambda n=before: desk.federation_report().offences.get(mallory.id, 0) > n, "it is refused")
            bad.close()
        source.publish(Count(1))
        seen.wait(2)
        assert seen.field("n") == [0, 1]


@pytest.mark.parametrize("former", ["lab", "mill"])
def test_who_had_it_once_cannot_say_to_have_it_again(former: str, tmp_path: Path) -> None:
    """A node that it began at, or was at, goes by what proved that, and says to have come later: with deeds of then,
    with none, and with one that it has signed for itself. Sinks hear nothing of it, and go on with the source."""
    with nodes() as make:
        lab, mill, desk = [logged(make, name, tmp_path) for name in ("lab", "mill", "desk")]
        source, seen = lab.channel(CHANNEL, Count).source("s"), Seen()
        desk.channel(CHANNEL, Count).subscribe(seen)
        make.together()
        see(desk, lab)
        assert desk.ready(GUARD)
        source.publish(Count(0))
        moved = mill.resume_source(source.move(), timeout=GUARD)
        home, deeds = moved.home, moved.deeds
        moved.publish(Count(1))
        if former == "mill":
            moved = lab.resume_source(moved.move(), timeout=GUARD)
            assert len(moved.deeds) == 2
        moved.publish(Count(2))
        seen.wait(3)
        bad_node = {"lab": lab, "mill": mill}[former]
        led = deeds if former == "mill" else ()
        own = Deeds(bad_node._engine.context).sign(home, 7, former)
        for shown in (led, (), (*led, own)):

            def says(made: Any, shown: tuple[bytes, ...] = shown) -> None:
                if made.channel.name == CHANNEL:
                    made.home, made.term, made.deeds, made.begins_after = home, 7, shown, 100

            bad_node._moving_sources.place = says
            before = desk.federation_report().offences.get(bad_node.id, 0)
            bad = bad_node.channel(CHANNEL, Count).source("s")
            bad.publish(Count(-1))
            eventually(lambda n=before: desk.federation_report().offences.get(bad_node.id, 0) > n, "it is refused")
            bad.close()
        moved.publish(Count(3))
        seen.wait(4)
        assert seen.field("n") == [0, 1, 2, 3]


class HastyClock(ManualClock):
    """So many seconds pass whenever it is looked at."""

    def __init__(self, time: int) -> None:
        super().__init__(time=time)
        self.step, self._passed = 0, 0

    def time(self) -> int:
        self._passed += self.step * 1_000_000
        return super().time() + self._passed


def test_a_token_that_expires_while_the_past_is_copied_leaves_what_was_copied(tmp_path: Path) -> None:
    """The source goes on where it was, and another token brings it with the rest."""
    size, count = 2_000, 6_000  # some 65 events a page; of the last 512 it is claimed

    def copied() -> list[int]:
        root = tmp_path / "mill.log" / ".moved"
        batches = ChannelReader(root, CHANNEL).read(columns=["event_seq"])
        return sorted(number for batch in batches for number in batch.column("event_seq").to_pylist())

    with nodes() as make:
        clock = HastyClock(1_800_000_000_000_000)
        lab, mill = logged(make, "lab", tmp_path, clock=clock), logged(make, "mill", tmp_path)
        for node in (lab, mill):
            node.channel(CHANNEL, "data: bytes")
        make.together()
        source = lab.channel(CHANNEL).source("s")
        source.publish_many([{"data": n.to_bytes(4) * (size // 4)} for n in range(count)])
        token = source.move(lasts=500)
        clock.step = 10
        with pytest.raises(FederationError, match="the token has expired; 's' goes on where it was"):
            mill.resume_source(token, timeout=GUARD)
        clock.step = 0
        some = copied()
        assert 0 < len(some) < count and some == list(range(1, len(some) + 1))
        assert source.publish(data=b"last") == count + 1
        again = source.move(lasts=300)
        clock.step = 5  # for 60 pages, of more than 80: what is here is not fetched again
        moved = mill.resume_source(again, timeout=GUARD)
        assert moved.seq == count + 1 and copied() == list(range(1, count + 2))
        seen = Seen()
        lab.channel(CHANNEL).subscribe(seen, history="all")
        assert [event.data[:4] for event in seen.wait(count + 1)] == [*(n.to_bytes(4) for n in range(count)), b"last"]
