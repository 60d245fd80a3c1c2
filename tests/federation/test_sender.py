"""Smart batching: at once where the link is idle, packed where it is not, and never anything left behind."""

from __future__ import annotations

import logging
import random
import struct
import threading
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ClosedError, LinkDown
from headwater.federation.transport.connection import dial
from headwater.federation.transport.listener import Listener
from headwater.federation.transport.sender import Pulse, Sender
from headwater.federation.transport.stream import Stream
from tests.effort import examples

GUARD = 120.0
NUMBER = struct.Struct("<II")  # who, and which of its events


class Lane:
    """What waits, and the frames made of it: as a node has it, but smaller."""

    def __init__(self, *, padding: int = 0) -> None:
        self.waiting: deque[bytes] = deque()
        self.padding = bytes(padding)
        self.frames = 0
        self.collecting = threading.Lock()

    def collect(self, budget: int) -> list[bytes]:
        assert self.collecting.acquire(blocking=False), "two threads collect at once"
        try:
            frames, size = [], 0
            while self.waiting and size < budget:
                body = self.waiting.popleft() + self.padding
                frames.append(struct.pack("<I", len(body)) + body)
                size += len(body)
            self.frames += len(frames)
            return frames
        finally:
            self.collecting.release()


class MemoryLink:
    """A link that takes `room` bytes until it is emptied; it is told when there is room again."""

    kind = "memory"

    def __init__(self, room: int = 1 << 60) -> None:
        self.bytes_out = self.bytes_in = 0
        self.busy = False
        self.room = room
        self.taken: list[bytes] = []
        self.writers: list[str] = []
        self.closed: list[str] = []
        self._backlog = b""
        self._changed = threading.Condition()
        self._arrived = 0

    def write(self, data: bytes) -> bool:
        with self._changed:
            if self.closed:
                raise LinkDown(self.closed[0])
            self.writers.append(threading.current_thread().name)
            self._backlog += data
            return self._push()

    def drain(self, timeout: float) -> bool:
        with self._changed:
            if timeout:
                self._changed.wait_for(lambda: self.closed or self.room > 0, timeout)
            if self.closed:
                raise LinkDown(self.closed[0])
            return self._push()

    def close(self, reason: str) -> None:
        with self._changed:
            self.closed.append(reason)
            self._changed.notify_all()

    def make_room(self, room: int) -> None:
        with self._changed:
            self.room += room
            self._changed.notify_all()

    def _push(self) -> bool:
        now, self._backlog = self._backlog[: self.room], self._backlog[self.room :]
        self.room -= len(now)
        self.bytes_out += len(now)
        self.taken.append(now)
        self.busy = bool(self._backlog)
        self._changed.notify_all()
        return not self.busy

    def wait_for(self, count: int) -> list[tuple[int, int]]:
        """Until so many events are out."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events) >= count, GUARD), f"only {len(self.events)} came"
        return self.events

    @property
    def events(self) -> list[tuple[int, int]]:
        return numbers(b"".join(self.taken))


def numbers(data: bytes) -> list[tuple[int, int]]:
    found, at = [], 0
    while at + 12 <= len(data):
        (size,) = struct.unpack_from("<I", data, at)
        if at + 4 + size > len(data):
            break
        found.append(NUMBER.unpack_from(data, at + 4))
        at += 4 + size
    return found


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = set(threading.enumerate())  # those of other tests may be on their way out
    yield
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert not [name for name in left if name.startswith("headwater-") and name != "headwater-compile"]


def publish(lane: Lane, sender: Sender, *events: tuple[int, int]) -> None:
    for event in events:
        lane.waiting.append(NUMBER.pack(*event))
        sender.send_soon()


def test_an_idle_link_sends_in_the_publishers_thread() -> None:
    lane, link = Lane(), MemoryLink()
    sender = Sender(lane.collect, "test")
    sender.attach(link)
    assert link.taken == []
    publish(lane, sender, (0, 0))
    assert link.events == [(0, 0)]
    assert link.writers == [threading.current_thread().name]
    sender.close()


def test_after_an_answer_the_next_question_goes_at_once() -> None:
    lane, link = Lane(), MemoryLink()
    sender = Sender(lane.collect, "test")
    sender.attach(link)
    for n in range(1000):
        publish(lane, sender, (0, n))
        assert link.events[-1:] == [(0, n)]
        link.taken.clear()
        link.bytes_in += 1
    assert set(link.writers) == {threading.current_thread().name}
    sender.close()


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=10))
def test_every_tail_goes_out_though_nobody_stirs_again(bursts: list[int]) -> None:
    lane, link = Lane(), MemoryLink()
    sender = Sender(lane.collect, "test")
    sender.attach(link)
    wanted: list[tuple[int, int]] = []
    for burst in bursts:
        events = [(0, len(wanted) + n) for n in range(burst)]
        wanted += events
        publish(lane, sender, *events)
        assert link.wait_for(len(wanted)) == wanted
    sender.close()


def test_a_flood_is_packed() -> None:
    lane, link = Lane(padding=92), MemoryLink()
    sender = Sender(lane.collect, "test")
    sender.attach(link)
    lane_add, count = lane.waiting.append, 50_000
    for n in range(count):
        lane_add(NUMBER.pack(0, n))
        sender.send_soon()
    assert sender.flush(GUARD)
    assert link.events == [(0, n) for n in range(count)]
    assert sender.writes == len(link.writers) < count / 4
    sender.close()


def test_a_flood_to_several_links_is_packed() -> None:
    """What the publisher does for the others makes none of them idle, making their frames included."""

    class Slow(Lane):
        def collect(self, budget: int) -> list[bytes]:
            zlib.crc32(bytes(100_000))
            return super().collect(budget)

    pulse, count = Pulse(), 3_000
    pairs = [(Slow(), MemoryLink()) for _ in range(4)]
    senders = [Sender(lane.collect, "test", pulse) for lane, _ in pairs]
    for sender, (_, link) in zip(senders, pairs, strict=True):
        sender.attach(link)
    for n in range(count):
        for sender, (lane, _) in zip(senders, pairs, strict=True):
            lane.waiting.append(NUMBER.pack(0, n))
            sender.send_soon()
    for sender, (_, link) in zip(senders, pairs, strict=True):
        assert sender.flush(GUARD)
        assert link.events == [(0, n) for n in range(count)]
        assert sender.writes < count / 4
        sender.close()


@pytest.mark.parametrize("seed", range(4))
def test_bursts_of_several_threads_all_arrive_in_order(seed: int) -> None:
    lane, link = Lane(), MemoryLink()
    sender = Sender(lane.collect, "test")
    sender.attach(link)
    threads, count = 4, 3000

    def work(who: int) -> None:
        dice = random.Random(seed * 10 + who)
        n = 0
        while n < count:
            for _ in range(min(dice.choice((1, 2, 3, 10, 300)), count - n)):
                publish(lane, sender, (who, n))
                n += 1
            # Let the others have their turn, so that bursts begin and end at all moments.
            threading.Event().wait(dice.choice((0, 0, 1e-5, 2e-4)))

    workers = [threading.Thread(target=work, args=(who,)) for who in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    events = link.wait_for(threads * count)  # without a flush: nothing may need another push
    for who in range(threads):
        assert [n for other, n in events if other == who] == list(range(count))
    assert not lane.waiting
    sender.close()


def test_a_full_link_makes_everything_wait_and_go_out_when_it_can() -> None:
    lane, link = Lane(padding=92), MemoryLink(room=1000)
    sender = Sender(lane.collect, "test")
    sender.attach(link)
    count = 20_000
    publish(lane, sender, *((0, n) for n in range(count)))
    assert not sender.flush(0.01)
    assert link.busy
    assert link.bytes_out == 1000
    for _ in range(20):
        link.make_room(10_000)
    link.make_room(1 << 40)
    assert link.wait_for(count) == [(0, n) for n in range(count)]
    assert sender.flush(GUARD)
    sender.close()


def test_what_was_not_collected_waits_for_the_next_link() -> None:
    lane, first = Lane(), MemoryLink()
    sender = Sender(lane.collect, "test")
    publish(lane, sender, (0, 0), (0, 1))
    assert not sender.attached
    assert not sender.flush(0)
    sender.attach(first)
    assert first.events == [(0, 0), (0, 1)]
    sender.detach()
    publish(lane, sender, *((0, n) for n in range(2, 5000)))
    assert first.events == [(0, 0), (0, 1)]
    second = MemoryLink()
    sender.attach(second)
    assert second.wait_for(4998) == [(0, n) for n in range(2, 5000)]
    sender.detach(first)  # it is not that one any more
    assert sender.attached
    sender.detach(second)
    assert not sender.attached
    sender.close()
    with pytest.raises(ClosedError):
        sender.attach(MemoryLink())


def test_a_link_that_fails_is_let_go_and_publishers_do_not_notice() -> None:
    lane, link = Lane(), MemoryLink()
    sender = Sender(lane.collect, "test")
    sender.attach(link)
    link.close("cut")
    publish(lane, sender, *((0, n) for n in range(100)))
    assert not sender.flush(GUARD)
    assert not sender.attached
    waiting = len(lane.waiting)
    assert lane.frames + waiting == 100  # what was collected for the link went with it
    publish(lane, sender, (0, 100))
    assert len(lane.waiting) == waiting + 1
    sender.close()


def test_a_full_link_that_fails_is_let_go_by_the_flusher() -> None:
    lane, link = Lane(padding=100), MemoryLink(room=10)
    sender = Sender(lane.collect, "test")
    sender.attach(link)
    publish(lane, sender, *((0, n) for n in range(100)))
    link.close("cut")
    assert not sender.flush(GUARD)
    assert not sender.attached
    sender.close()


def test_a_collect_that_fails_closes_the_link(caplog: pytest.LogCaptureFixture) -> None:
    def collect(budget: int) -> list[bytes]:
        raise ValueError("a fault")

    link = MemoryLink()
    sender = Sender(collect, "test")
    with caplog.at_level(logging.ERROR):
        sender.attach(link)
    assert link.closed == ["what waits for it cannot be sent: a fault"]
    assert "cannot be sent" in caplog.text
    assert not sender.attached
    sender.send_soon()
    sender.close()


def test_an_interrupt_while_sending_closes_the_link() -> None:
    def interrupt(budget: int) -> list[bytes]:
        if lane.waiting:
            raise KeyboardInterrupt
        return []

    lane, link = Lane(), MemoryLink()
    sender = Sender(interrupt, "test")
    sender.attach(link)
    lane.waiting.append(b"")
    with pytest.raises(KeyboardInterrupt):
        sender.send_soon()
    assert link.closed == ["interrupted while sending"]
    sender.send_soon()
    sender.close()


def test_stir_within_collect_is_harmless() -> None:
    lane, link = Lane(), MemoryLink()

    def collect(budget: int) -> list[bytes]:
        frames = lane.collect(budget)
        if frames and lane.frames < 10:
            publish(lane, sender, (0, lane.frames))
        return frames

    sender = Sender(collect, "test")
    sender.attach(link)
    publish(lane, sender, (0, 0))
    assert link.wait_for(10) == [(0, n) for n in range(10)]
    sender.close()


def test_more_than_the_budget_goes_out_without_another_stir() -> None:
    lane, link = Lane(padding=1000), MemoryLink()
    sender = Sender(lane.collect, "test")
    lane.waiting.extend(NUMBER.pack(0, n) for n in range(3000))
    sender.attach(link)
    assert link.wait_for(3000) == [(0, n) for n in range(3000)]
    lane.waiting.extend(NUMBER.pack(0, n) for n in range(3000, 6000))
    sender.send_soon()
    assert link.wait_for(6000) == [(0, n) for n in range(6000)]
    sender.close()


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_over_a_real_socket_that_is_read_now_and_then(kind: str, tmp_path: Path) -> None:
    accepted: SimpleQueue[Stream] = SimpleQueue()
    done = threading.Event()
    count, threads = 10_000, 3
    seen: list[tuple[int, int]] = []

    def on_frame(frame: bytes | memoryview, link: object) -> None:
        seen.append(NUMBER.unpack_from(frame))
        if len(seen) == count * threads:
            done.set()

    def end(reason: str) -> None:
        pass

    with Listener(["tcp/127.0.0.1:0" if kind == "tcp" else f"unix/{tmp_path}/s.sock"], accepted.put) as listener:
        near = dial(listener.endpoints[0])
        far = accepted.get(timeout=GUARD)
        near.start(lambda: on_frame, end)
        lane = Lane(padding=500)
        sender = Sender(lane.collect, "test")
        sender.attach(near)

        def work(who: int) -> None:
            for n in range(count):
                publish(lane, sender, (who, n))

        workers = [threading.Thread(target=work, args=(who,)) for who in range(threads)]
        for worker in workers:
            worker.start()
        if kind == "tcp":
            for worker in workers:  # all of it before the first is read
                worker.join()
        far.start(lambda: on_frame, end)
        assert done.wait(GUARD)
        for worker in workers:
            worker.join()
        for who in range(threads):
            assert [n for other, n in seen if other == who] == list(range(count))
        assert sender.flush(GUARD)
        assert not lane.waiting
        sender.close()
        for stream in (near, far):
            stream.close()
            assert stream.join(GUARD)
