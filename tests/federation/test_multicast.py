"""Multicast over real sockets on loopback: who gets what, what becomes of the rest, and hostile datagrams."""

from __future__ import annotations

import json
import queue
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ClosedError, ConfigError, FederationError, FrameError
from headwater.federation.address_map import AddressMap, Group, HashedGroups
from headwater.federation.multicast.datagram import (
    HEAD,
    MAGIC,
    OVERHEAD,
    VERSION,
    WINDOW_DATAGRAMS,
    ReceivedCounts,
    Window,
    federation_number,
)
from headwater.federation.multicast.sockets import Datagram, Multicast, node_number
from tests.effort import examples

WAIT = 10.0
KEY = b"a key of the lab, 32 bytes long."


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return port


def frame(body: bytes, kind: int = 2) -> bytes:
    return struct.pack("<IB", len(body) + 1, kind) + body


class Receiver:
    """A node's multicast and what it has got."""

    def __init__(self, node: str, groups: AddressMap, **options: Any) -> None:
        self.got: queue.Queue[Datagram] = queue.Queue()
        options = {"federation": "lab", "incarnation": 1, **options}
        self.handler: Callable[[Datagram], None] = self.got.put
        self.multicast = Multicast(groups, lambda datagram: self.handler(datagram), node=node, **options)

    def bodies(self, count: int) -> list[bytes]:
        """The bodies of the first frames of the next datagrams."""
        return [bytes(self.got.get(timeout=WAIT).frames[0][1:]) for _ in range(count)]


class Net:
    def __init__(self) -> None:
        self.port = free_port()
        self.map = HashedGroups(port=self.port)
        self.receivers: list[Receiver] = []

    def node(self, name: str, **options: Any) -> Receiver:
        receiver = Receiver(name, self.map, **options)
        self.receivers.append(receiver)
        return receiver

    def group(self, at: int) -> Group:
        return Group(f"239.255.42.{at}", self.port)

    def close(self) -> None:
        for receiver in self.receivers:
            receiver.multicast.close()


@pytest.fixture
def net() -> Iterator[Net]:
    net = Net()
    yield net
    net.close()


def raw_socket() -> socket.socket:
    raw = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    raw.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    raw.bind(("127.0.0.1", 0))
    return raw


# ── settings ──


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ({"interface": "lo"}, ["interface"]),
        ({"interface": "239.1.1.1"}, ["interface"]),
        ({"interface": "192.0.2.77"}, ["key"]),  # not loopback, so a key is required
        ({"ttl": 256, "datagram": 70_000, "receive_buffer": 1, "incarnation": -1},
         ["incarnation", "ttl", "receive_buffer", "datagram"]),
        ({"key": b"short"}, ["key"]),
        ({"key": "text"}, ["key"]),
    ],
)  # fmt: skip
def test_impossible_settings(options: dict[str, Any], places: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        Receiver("a", HashedGroups(), **options)
    assert [problem.place for problem in caught.value.problems] == [f"multicast {place}" for place in places]


def test_an_interface_that_is_not_there() -> None:
    with pytest.raises(FederationError, match=r"203\.0\.113\.9"):
        Receiver("a", HashedGroups(), interface="203.0.113.9", key=KEY)
    with pytest.raises(ConfigError, match="an address map"):
        Receiver("a", None)  # type: ignore[arg-type]


# ── sending and receiving ──


@pytest.mark.parametrize("key", [None, KEY])
def test_one_datagram_serves_all(net: Net, key: bytes | None) -> None:
    sender = net.node("sender", key=key)
    receivers = [net.node(f"r{n}", key=key) for n in range(5)]
    group = net.group(1)
    for n, receiver in enumerate(receivers):
        receiver.multicast.join(group)
        sender.multicast.interested(group, f"r{n}")
    two = frame(b"hello"), frame(b"world", 3)
    assert sender.multicast.send(group, *two)
    for receiver in receivers:
        got = receiver.got.get(timeout=WAIT)
        assert (got.group, got.node, got.incarnation, got.counter) == (group, node_number("sender"), 1, 1)
        assert [bytes(each) for each in got.frames] == [two[0][4:], two[1][4:]]
        assert got.address.startswith("127.0.0.1:")
    counters = sender.multicast.counters
    assert (counters.sent, counters.bytes_out) == (1, OVERHEAD + sum(map(len, two)))
    for receiver in receivers:
        receiver.multicast.close()
        assert receiver.multicast.counters.received == receiver.multicast.counters.arrived == 1
        assert receiver.multicast.counters.bytes_in == counters.bytes_out


def test_order_and_full_size(net: Net) -> None:
    sender, receiver = net.node("sender", datagram=1_400), net.node("r")
    group = net.group(2)
    receiver.multicast.join(group)
    sender.multicast.interested(group, "r")
    assert sender.multicast.budget == 1_400 - OVERHEAD
    bodies = [bytes([n % 256]) * (sender.multicast.budget - 5) for n in range(300)]
    for start in range(0, 300, 100):  # no more at once than the receive buffer holds
        for body in bodies[start : start + 100]:
            assert sender.multicast.send(group, frame(body))
        assert receiver.bodies(100) == bodies[start : start + 100]
    with pytest.raises(FrameError, match="1352"):
        sender.multicast.send(group, bodies[0], bytes(6))
    with pytest.raises(FrameError, match="found 0"):
        sender.multicast.send(group)
    assert receiver.multicast.counters.missed == 0


def test_the_largest_datagram(net: Net) -> None:
    sender, receiver = net.node("sender", datagram=65_507), net.node("r")
    receiver.multicast.join(net.group(1))
    sender.multicast.interested(net.group(1), "r")
    body = random.Random(1).randbytes(sender.multicast.budget - 5)
    assert sender.multicast.send(net.group(1), frame(body))
    assert receiver.bodies(1) == [body]


def test_only_joined_groups_are_received(net: Net) -> None:
    sender, one, both = net.node("sender"), net.node("one"), net.node("both")
    a, b = net.group(3), net.group(4)
    both.multicast.join(a)
    both.multicast.join(b)
    one.multicast.join(b)
    for group in (a, b):
        sender.multicast.interested(group, "both")
    sender.multicast.send(a, frame(b"a"))
    assert both.bodies(1) == [b"a"]
    sender.multicast.send(b, frame(b"b"))
    assert both.bodies(1) == one.bodies(1) == [b"b"]
    assert one.multicast.counters.arrived == 1
    assert one.multicast.joined == {b}


def test_more_groups_than_one_socket_may_join(net: Net) -> None:
    sender, receiver = net.node("sender"), net.node("r")
    groups = [net.group(n) for n in range(64)]
    for group in groups:
        receiver.multicast.join(group)
        sender.multicast.interested(group, "r")
    for n, group in enumerate(groups):
        sender.multicast.send(group, frame(b"%d" % n))
    assert sorted(map(int, receiver.bodies(64))) == list(range(64))


def test_the_last_leave_ends_it(net: Net) -> None:
    sender, receiver = net.node("sender"), net.node("r")
    group, other = net.group(5), net.group(6)
    sender.multicast.interested(group, "r")
    sender.multicast.interested(other, "r")
    receiver.multicast.join(other)
    receiver.multicast.join(group)
    receiver.multicast.join(group)
    receiver.multicast.leave(group)
    sender.multicast.send(group, frame(b"1"))
    assert receiver.bodies(1) == [b"1"]
    receiver.multicast.leave(group)
    sender.multicast.send(group, frame(b"2"))
    sender.multicast.send(other, frame(b"3"))
    assert receiver.bodies(1) == [b"3"]
    with pytest.raises(FederationError, match=str(group)):
        receiver.multicast.leave(group)
    receiver.multicast.join(group)  # and back: what was sent meanwhile is not missed
    sender.multicast.send(group, frame(b"4"))
    assert receiver.bodies(1) == [b"4"]
    assert receiver.multicast.counters.missed == 0


def test_nobody_interested_nothing_sent(net: Net) -> None:
    sender, receiver = net.node("sender"), net.node("r")
    group = net.group(7)
    receiver.multicast.join(group)
    assert not sender.multicast.wanted(group)
    assert not sender.multicast.send(group, frame(b"1"))
    sender.multicast.interested(group, "r")
    sender.multicast.interested(group, "s")
    assert sender.multicast.wanted(group) and sender.multicast.members(group) == {"r", "s"}
    assert sender.multicast.send(group, frame(b"2"))
    sender.multicast.uninterested(group, "s")
    assert sender.multicast.send(group, frame(b"3"))
    sender.multicast.forget("r")
    assert not sender.multicast.wanted(group)
    assert not sender.multicast.send(group, frame(b"4"))
    sender.multicast.interested(group, "r")
    assert sender.multicast.send(group, frame(b"5"))
    assert receiver.bodies(3) == [b"2", b"3", b"5"]
    counters = sender.multicast.counters
    assert (counters.sent, counters.unwanted, receiver.multicast.counters.missed) == (3, 2, 0)


def test_a_node_does_not_hear_itself_but_its_neighbours_in_the_process(net: Net) -> None:
    one, two = net.node("one"), net.node("two")
    group = net.group(8)
    for receiver, other in ((one, "two"), (two, "one")):
        receiver.multicast.join(group)
        receiver.multicast.interested(group, other)
    one.multicast.send(group, frame(b"from one"))
    assert two.bodies(1) == [b"from one"]
    two.multicast.send(group, frame(b"from two"))
    assert one.bodies(1) == [b"from two"]
    assert (one.multicast.counters.own, one.multicast.counters.received) == (1, 1)


CHILD = """
import json, queue, sys
from headwater.federation.address_map import Group, HashedGroups
from headwater.federation.multicast.sockets import Multicast

group, count = Group.parse(sys.argv[1]), int(sys.argv[2])
got = queue.Queue()
with Multicast(HashedGroups(), got.put, federation="lab", node=sys.argv[3], incarnation=1) as multicast:
    multicast.join(group)
    print("joined", flush=True)
    print(json.dumps([bytes(got.get(timeout=20).frames[0][1:]).decode() for _ in range(count)]), flush=True)
"""


def test_one_datagram_serves_other_processes_too(net: Net) -> None:
    sender, here = net.node("sender"), net.node("here")
    group = net.group(9)
    here.multicast.join(group)
    sender.multicast.interested(group, "here")
    children = []
    try:
        for name in ("child-1", "child-2"):
            command = [sys.executable, "-c", CHILD, str(group), "20", name]
            children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "joined\n"
        said = [f"event {n}" for n in range(20)]
        for text in said:
            sender.multicast.send(group, frame(text.encode()))
        assert here.bodies(20) == [text.encode() for text in said]
        for child in children:
            out, _ = child.communicate(timeout=30)
            assert json.loads(out) == said and child.returncode == 0
    finally:
        for child in children:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()
    assert sender.multicast.counters.sent == 20


# ── what is dropped ──


def overheard(net: Net, group: Group) -> socket.socket:
    """A socket that hears what is sent to a group."""
    ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    ear.bind((group.address, group.port))
    membership = socket.inet_aton(group.address) + socket.inet_aton("127.0.0.1")
    ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    ear.settimeout(WAIT)
    return ear


@pytest.mark.parametrize("key", [None, KEY])
def test_replays_and_late_ones(net: Net, key: bytes | None) -> None:
    sender, receiver = net.node("sender", key=key), net.node("r", key=key)
    group = net.group(10)
    sender.multicast.interested(group, "r")
    with overheard(net, group) as ear, raw_socket() as raw:
        said = []
        for n in range(WINDOW_DATAGRAMS + 3):
            sender.multicast.send(group, frame(b"%d" % n))
            said.append(ear.recv(2_000))
        receiver.multicast.join(group)

        def play(at: int) -> None:
            raw.sendto(said[at], (group.address, group.port))

        for at in (1, 4, 1, 4, 3, 3, 2, 0):  # late ones are taken, but none twice
            play(at)
        assert receiver.bodies(5) == [b"1", b"4", b"3", b"2", b"0"]
        counters = receiver.multicast.counters
        assert (counters.duplicates, counters.missed, counters.stale) == (3, 0, 0)
        play(WINDOW_DATAGRAMS + 2)
        play(2)
        play(WINDOW_DATAGRAMS + 1)
        assert receiver.bodies(2) == [b"%d" % (WINDOW_DATAGRAMS + 2), b"%d" % (WINDOW_DATAGRAMS + 1)]
        counters = receiver.multicast.counters
        assert (counters.duplicates, counters.stale, counters.missed) == (3, 1, WINDOW_DATAGRAMS - 4)
        receiver.multicast.leave(group)  # leaving and joining again opens no door for replays
        receiver.multicast.join(group)
        play(WINDOW_DATAGRAMS + 2)
        sender.multicast.send(group, frame(b"new"))
        assert receiver.bodies(1) == [b"new"]
        assert receiver.multicast.counters.duplicates == 4


def test_a_datagram_of_one_group_is_forged_in_another(net: Net) -> None:
    sender, receiver = net.node("sender", key=KEY), net.node("r", key=KEY)
    a, b = net.group(11), net.group(12)
    for group in (a, b):
        sender.multicast.interested(group, "r")
    receiver.multicast.join(b)
    with overheard(net, a) as ear, raw_socket() as raw:
        sender.multicast.send(a, frame(b"a"))
        raw.sendto(ear.recv(2_000), (b.address, b.port))
        sender.multicast.send(b, frame(b"b"))
        assert receiver.bodies(1) == [b"b"]
        counters = receiver.multicast.counters
        assert counters.forged == 1
        offence = counters.offenders[f"127.0.0.1:{raw.getsockname()[1]}"]
        assert offence.count == 1 and "wrong MAC" in offence.reason


def test_wrong_keys_and_other_federations(net: Net) -> None:
    receiver, open_one = net.node("r", key=KEY), net.node("open")
    group = net.group(13)
    good, bad = net.node("good", key=KEY), net.node("bad", key=KEY[::-1])
    none, other = net.node("none"), net.node("other", key=KEY, federation="works")
    senders = (bad, none, other, good)
    for each in senders:
        each.multicast.interested(group, "r")
    receiver.multicast.join(group)
    open_one.multicast.join(group)
    for n, each in enumerate(senders):
        each.multicast.send(group, frame(b"%d" % n))
    assert receiver.bodies(1) == [b"3"]
    assert open_one.bodies(1) == [b"1"]
    counters = receiver.multicast.counters
    assert (counters.forged, counters.foreign, counters.received) == (2, 1, 1)
    assert len(counters.offenders) == 2
    good.multicast.send(group, frame(b"4"))
    none.multicast.send(group, frame(b"5"))
    assert open_one.bodies(1) == [b"5"]
    assert open_one.multicast.counters.forged == 3  # what has a key cannot be checked without it


def test_strangers(net: Net) -> None:
    known = {(node_number("friend"), 7)}
    receiver = net.node("r", accepts=lambda node, incarnation: (node, incarnation) in known)
    group = net.group(14)
    receiver.multicast.join(group)
    friend, old, enemy = net.node("friend", incarnation=7), net.node("friend", incarnation=6), net.node("enemy")
    for each in (enemy, old, friend):
        each.multicast.interested(group, "r")
        each.multicast.send(group, frame(b"x"))
    got = receiver.got.get(timeout=WAIT)
    assert (got.node, got.incarnation) == (node_number("friend"), 7)
    assert receiver.multicast.counters.strangers == 2


def test_loss_for_soak_tests(net: Net) -> None:
    sender, receiver = net.node("sender"), net.node("r", lose=lambda counter: counter % 3 == 0)
    group = net.group(15)
    receiver.multicast.join(group)
    sender.multicast.interested(group, "r")
    for n in range(1, 101):
        sender.multicast.send(group, frame(b"%d" % n))
    assert receiver.bodies(67) == [b"%d" % n for n in range(1, 101) if n % 3]
    counters = receiver.multicast.counters
    assert (counters.lost, counters.missed) == (33, 33)


def test_handlers_that_fail(net: Net, caplog: pytest.LogCaptureFixture) -> None:
    sender, receiver = net.node("sender"), net.node("r")
    group = net.group(16)

    def handler(datagram: Datagram) -> None:
        match bytes(datagram.frames[0][1:]):
            case b"frame":
                raise FrameError("a frame of kind 99")
            case b"bug":
                raise KeyError("bug")
        receiver.got.put(datagram)

    receiver.handler = handler
    receiver.multicast.join(group)
    sender.multicast.interested(group, "r")
    for body in (b"frame", b"bug", b"bug", b"bug", b"fine"):
        sender.multicast.send(group, frame(body))
    assert receiver.bodies(1) == [b"fine"]
    receiver.multicast.close()
    counters = receiver.multicast.counters
    assert (counters.malformed, counters.failures, counters.received) == (1, 3, 4)
    assert [offence.reason for offence in counters.offenders.values()] == ["a frame of kind 99"]
    assert len(caplog.records) == 2  # the first and the second


def test_handlers_may_join_leave_send_and_close(net: Net) -> None:
    sender, receiver = net.node("sender"), net.node("r")
    a, b = net.group(17), net.group(18)
    sender.multicast.join(a)
    receiver.multicast.join(a)
    for group in (a, b):
        sender.multicast.interested(group, "r")
    receiver.multicast.interested(a, "sender")

    def handler(datagram: Datagram) -> None:
        match bytes(datagram.frames[0][1:]):
            case b"move":
                receiver.multicast.join(b)
                receiver.multicast.send(a, frame(b"moved"))
                receiver.multicast.leave(a)
            case b"close":
                receiver.multicast.close()
                receiver.got.put(datagram)

    receiver.handler = handler
    sender.multicast.send(a, frame(b"move"))
    assert sender.bodies(1) == [b"moved"]
    sender.multicast.send(a, frame(b"close"))  # unheard: a was left, or is just being left
    sender.multicast.send(b, frame(b"close"))
    assert receiver.got.get(timeout=WAIT).group == b
    receiver.multicast.close()
    assert receiver.got.empty()


def test_closed(net: Net) -> None:
    receiver = net.node("r")
    group = net.group(19)
    receiver.multicast.join(group)
    receiver.multicast.interested(group, "x")
    receiver.multicast.close()
    receiver.multicast.close()
    assert receiver.multicast.joined == frozenset()
    assert "closed" in repr(receiver.multicast)
    receiver.multicast.leave(group)  # who leaves last need not know
    for act in (
        lambda: receiver.multicast.join(group),
        lambda: receiver.multicast.send(group, frame(b"x")),
        lambda: receiver.multicast.send(net.group(20), frame(b"x")),
        lambda: receiver.multicast.interested(group, "y"),
    ):
        with pytest.raises(ClosedError, match="'r'"):
            act()
    unused = net.node("unused")
    unused.multicast.close()


def test_a_port_that_is_taken(net: Net) -> None:
    receiver = net.node("r")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as greedy:
        greedy.bind(("", net.port))
        with pytest.raises(FederationError, match="cannot join"):
            receiver.multicast.join(net.group(1))
        assert receiver.multicast.joined == frozenset()
    receiver.multicast.join(net.group(1))


# ── hostile ──


def heads() -> st.SearchStrategy[bytes]:
    """Heads that are right in much."""
    number = st.integers(0, 2**64 - 1)
    known = st.sampled_from([node_number("good"), node_number("r")])
    return st.builds(
        HEAD.pack,
        st.just(MAGIC) | st.integers(0, 2**16 - 1),
        st.just(VERSION) | st.integers(0, 255),
        st.integers(0, 1) | st.integers(0, 255),
        st.just(federation_number("lab")) | st.integers(0, 2**32 - 1),
        known | number,
        st.just(1) | number,
        st.integers(0, 3) | number,
    )


@pytest.mark.parametrize("key", [None, KEY])
def test_hostile_datagrams_never_stop_it(key: bytes | None) -> None:
    net = Net()
    sender, receiver = net.node("good", key=key), net.node("r", key=key)
    group = net.group(21)
    sender.multicast.interested(group, "r")
    receiver.multicast.join(group)
    with overheard(net, group) as ear, raw_socket() as raw:
        assert sender.multicast.send(group, frame(b"real"))
        real = ear.recv(1 << 16)
        assert receiver.bodies(1) == [b"real"]

        mutated = st.builds(
            mutate, st.just(real), st.lists(st.tuples(st.integers(0, 99), st.integers(1, 255)), max_size=4),
            st.integers(0, 99), st.binary(max_size=9),
        )  # fmt: skip
        made = st.tuples(heads(), st.just(bytes(16)) | st.binary(min_size=16, max_size=16), st.binary(max_size=40))
        hostile = st.binary(max_size=100) | mutated | made.map(b"".join)

        @settings(max_examples=examples(100), deadline=None)
        @given(st.lists(hostile, max_size=12))
        def attack(datagrams: list[bytes]) -> None:
            for data in datagrams:
                raw.sendto(data, (group.address, group.port))

        attack()
        # Without a key an enemy on this host can speak for the sender, and its counters are spoilt: another comes.
        fresh = net.node("fresh", key=key)
        fresh.multicast.interested(group, "r")
        assert fresh.multicast.send(group, frame(b"fine"))
        while (got := receiver.got.get(timeout=WAIT)).node != node_number("fresh"):
            assert key is None, "with a key nothing else gets through"
            assert all(len(each) for each in got.frames)
        assert bytes(got.frames[0][1:]) == b"fine"
        net.close()
        seen = receiver.multicast.counters
        assert seen.malformed > 0 and seen.forged > 0 and seen.failures == 0
        dropped = seen.own + seen.foreign + seen.malformed + seen.forged + seen.stale + seen.duplicates
        assert seen.arrived == seen.received + dropped
        assert f"127.0.0.1:{raw.getsockname()[1]}" in seen.offenders


def mutate(data: bytes, changes: list[tuple[int, int]], cut: int, more: bytes) -> bytes:
    """A real datagram with some bytes changed, perhaps shorter, perhaps longer."""
    changed = bytearray(data)
    for at, by in changes:
        changed[at % len(changed)] ^= by
    return bytes(changed[: len(changed) - cut if cut < len(changed) // 2 else len(changed)] + more)


def test_offenders_are_bounded(net: Net) -> None:
    sender, receiver = net.node("sender"), net.node("r")
    group = net.group(22)
    receiver.multicast.join(group)
    sender.multicast.interested(group, "r")
    for _ in range(300):
        with raw_socket() as raw:
            raw.sendto(b"nonsense", (group.address, group.port))
    sender.multicast.send(group, frame(b"x"))
    assert receiver.bodies(1) == [b"x"]
    counters = receiver.multicast.counters
    assert counters.malformed == 300
    assert 0 < len(counters.offenders) <= 256


@given(st.lists(st.integers(1, 3_000) | st.integers(1, 30), max_size=60))
@settings(max_examples=examples(200), deadline=None)
def test_no_counter_is_taken_twice(counters: list[int]) -> None:
    seen, window = ReceivedCounts(), None
    taken: list[int] = []
    for counter in counters:
        if window is None:
            window, new = Window(counter, 1), True
        else:
            new = window.take(counter, 1, seen)
        late = bool(taken) and counter <= max(taken) - WINDOW_DATAGRAMS
        assert new == (counter not in taken and not late)
        if new:
            taken.append(counter)
    if taken:
        first = taken[0]
        assert seen.missed == max(taken) - first + 1 - sum(counter >= first for counter in taken)
