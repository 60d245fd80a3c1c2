"""The lock for moments: one at a time has it, however long that takes, and whatever is interrupted."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator

import pytest

from headwater.channel.concurrency import gate as gate_module
from headwater.channel.concurrency.gate import Gate

GUARD = 120.0


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Who waits looks again so often that a test need not wait for it."""
    monkeypatch.setattr(gate_module, "RECHECK_SECONDS", 0.001)
    yield


def tokens(gate: Gate) -> int:
    return len(gate.token)


def enter_in_place(gate: Gate) -> None:
    """As the code does for which every nanosecond counts."""
    try:
        gate.token.pop()
    except IndexError:
        try:
            gate.queue()
        except BaseException:
            gate.undo()
            raise


def leave_in_place(gate: Gate) -> None:
    gate.token.append(None)
    if gate.waiters:
        gate.wake()


@pytest.mark.parametrize("in_place", [False, True])
def test_nobody_enters_while_it_is_held_for_long(in_place: bool, caplog: pytest.LogCaptureFixture) -> None:
    gate, inside, go, entered = Gate(), threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        if in_place:
            enter_in_place(gate)
            inside.set()
            go.wait(GUARD)
            leave_in_place(gate)
        else:
            with gate:
                inside.set()
                go.wait(GUARD)

    def wait() -> None:
        with gate:
            entered.set()

    holder, waiter = threading.Thread(target=hold, name="holder"), threading.Thread(target=wait)
    holder.start()
    assert inside.wait(GUARD)
    with caplog.at_level(logging.ERROR, "headwater"):
        waiter.start()
        # It has looked in vain far more often than it takes to say so, and is not in.
        assert _eventually(lambda: caplog.text.count("waiting for a lock") >= 3)
        assert not entered.is_set() and tokens(gate) == 0
        go.set()
        assert entered.wait(GUARD)
    holder.join(GUARD)
    waiter.join(GUARD)
    assert tokens(gate) == 1 and gate.waiters == 0
    assert in_place or "thread holder has it" in caplog.text


def test_one_at_a_time_is_inside_whatever_the_others_do() -> None:
    """Many threads, in both ways, some of which stay inside for longer than others look again."""
    gate, inside, most, done = Gate(), [0], [0], [0]
    pause, rounds, threads = threading.Event(), 400, 8

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(rounds):
            direct = chance.random() < 0.5
            if direct:
                enter_in_place(gate)
            else:
                gate.__enter__()
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            if chance.random() < 0.02:
                pause.wait(0.005)  # several looks of those who wait
            done[0] += 1  # not atomic: it counts right only if nobody else is here
            inside[0] -= 1
            if direct:
                leave_in_place(gate)
            else:
                gate.__exit__()

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(GUARD)
    assert most == [1] and inside == [0] and done == [rounds * threads]
    assert tokens(gate) == 1 and gate.waiters == 0


def test_what_a_thread_has_taken_that_is_no_more_is_made_anew(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    gone = threading.Thread(target=gate.__enter__)  # as if it were interrupted when it left
    gone.start()
    gone.join(GUARD)
    assert tokens(gate) == 0
    entered = []

    def enter() -> None:
        with gate:
            entered.append(tokens(gate))

    others = [threading.Thread(target=enter) for _ in range(4)]
    for other in others:
        other.start()
    for other in others:
        other.join(GUARD)
    assert entered == [0, 0, 0, 0] and tokens(gate) == 1
    assert caplog.text.count("is made anew") == 1


def test_what_an_interrupt_has_lost_is_made_anew_when_its_thread_comes_again() -> None:
    gate = Gate()
    gate.__enter__()  # and Ctrl-C comes in the moment in which it is left
    assert _again(gate) == 0
    assert tokens(gate) == 1


def _again(gate: Gate) -> int:
    with gate:
        return tokens(gate)


def test_who_has_it_does_not_get_it_twice() -> None:
    """A signal handler, or a finalizer, that comes in while the same thread is inside."""
    gate = Gate()
    with gate:
        with pytest.raises(RuntimeError, match="by the thread that has it"):
            _again(gate)
        assert tokens(gate) == 0
    assert tokens(gate) == 1


def _eventually(condition: object) -> bool:
    pause = threading.Event()
    for _ in range(3000):
        if condition():  # type: ignore[operator]
            return True
        pause.wait(0.01)
    return False
