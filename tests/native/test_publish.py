"""The fast path by itself: what machine code does at each fork of it, with objects made up for the purpose."""

from __future__ import annotations

import ctypes
import gc
import inspect
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from types import BuiltinFunctionType, SimpleNamespace
from typing import Any

import pytest

from headwater.native.python.publish import BypassSlots, FastPath, FlowSlots, SourceSlots, offered

NEST: list[Any] = [None]
DEPTH, SAMPLE = 5, 3
WAY = FastPath(nest=NEST, depth=DEPTH, sample=SAMPLE, doc="Publish it.")


class Thing:
    """An event that is handed over as it is."""


class Other:
    """One that is decoded."""


class Sorry(Exception):
    pass


class Bench:
    """A source, its flow, a sink, and a log of what was called."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.thing, self.other = Thing(), Other()
        self.source, self.flow, self.bypass = SourceSlots(), FlowSlots(), BypassSlots()
        source, flow, bypass = self.source, self.flow, self.bypass
        source._fast = {self.thing: b"thing", self.other: b"other"}.get  # type: ignore[assignment]
        source._flow, source._full, source._gate = flow, set(), [None]
        source._slow = self.slow
        flow.bypass, flow.seen = bypass, 0
        bypass.handler, bypass.decode, bypass.cls = self.handler, self.decode, Thing
        bypass.failed, bypass.after_bypass, bypass.send_first = self.failed, self.told, self.told
        bypass.token, bypass.items, bypass.blocks_bypass, bypass.thread = [None], deque(), [], bytearray(8)
        self.then: Any = None  # raised, or called, by the handler
        made = WAY.publish(source)
        assert made is not None
        self.publish = made

    def slow(self, *args: Any, **fields: Any) -> int:
        self.log.append(("slow", args, fields))
        return -1

    def handler(self, event: Any) -> None:
        assert self.bypass.token == [] and NEST[0] is self.bypass
        assert int.from_bytes(self.bypass.thread, sys.byteorder) == threading.get_ident()
        self.log.append(event)
        self.act(self.then)

    def decode(self, record: bytes) -> Any:
        self.log.append(record)
        if record == self.spoiled:
            raise Sorry("cannot be read")
        return record.decode()

    spoiled = b""

    def failed(self, error: Exception, event: Any) -> None:
        assert self.bypass.token == []
        self.log.append(("failed", type(error), str(error), event))
        assert error.__traceback__ is not None
        self.act(self.then_failed)

    then_failed: Any = None

    def told(self) -> None:
        assert self.bypass.token == [None]
        self.log.append("told")
        self.act(self.then_told)

    then_told: Any = None

    def act(self, what: Any) -> None:
        if isinstance(what, BaseException):
            raise what
        if what is not None:
            what()

    def at_rest(self) -> bool:
        return self.bypass.token == [None] and NEST == [None]


@pytest.fixture
def bench() -> Any:
    made = Bench()
    yield made
    assert NEST == [None]


def test_it_is_offered_where_the_tests_run() -> None:
    assert offered()


def test_an_event_goes_to_the_function_as_it_is(bench: Bench) -> None:
    assert bench.publish(bench.thing) == 1
    assert bench.publish(bench.thing) == 2
    assert bench.log == [bench.thing, bench.thing]
    assert bench.flow.seen == 2 and bench.at_rest()


def test_an_event_of_another_class_is_decoded(bench: Bench) -> None:
    assert bench.publish(bench.other) == 1
    assert bench.log == [b"other", "other"] and bench.at_rest()


def test_sequence_numbers_do_not_end_with_a_word(bench: Bench) -> None:
    bench.flow.seen = (1 << 40) | SAMPLE + 1
    assert bench.publish(bench.thing) == bench.flow.seen == ((1 << 40) | SAMPLE + 1) + 1


@pytest.mark.parametrize("args", [(), (1, 2), (None,), ("text",)], ids=repr)
def test_what_is_not_one_plain_event_is_passed_on(bench: Bench, args: tuple[Any, ...]) -> None:
    bench.source._fast = {}.get
    assert bench.publish(*args) == -1
    assert bench.log == [("slow", args, {})] and bench.flow.seen == 0


def test_keywords_are_passed_on(bench: Bench) -> None:
    assert bench.publish(badge=7, level=0.5) == -1
    assert bench.publish(bench.thing, badge=7) == -1
    assert bench.log == [
        ("slow", (), {"badge": 7, "level": 0.5}),
        ("slow", (bench.thing,), {"badge": 7}),
    ]


CLOSED: dict[str, Any] = {
    "no bypass": lambda b: setattr(b.flow, "bypass", None),
    "the gate is taken": lambda b: b.source._gate.clear(),
    "something is full": lambda b: b.source._full.add(1),
    "something waits": lambda b: b.bypass.items.append(1),
    "blocks_bypass": lambda b: b.bypass.blocks_bypass.append(None),
    "it runs": lambda b: b.bypass.token.clear(),
    "to be sampled": lambda b: setattr(b.flow, "seen", SAMPLE),
}


@pytest.mark.parametrize("why", CLOSED)
def test_the_way_is_closed(bench: Bench, why: str) -> None:
    CLOSED[why](bench)
    seen, token = bench.flow.seen, bench.bypass.token.copy()
    assert bench.publish(bench.thing) == -1
    assert bench.log == [("slow", (bench.thing,), {})]
    assert bench.flow.seen == seen and bench.bypass.token == token


@pytest.mark.parametrize("why", CLOSED)
def test_the_way_is_closed_while_the_event_is_encoded(bench: Bench, why: str) -> None:
    armed = False

    class Meddler(Thing):
        def __hash__(self) -> int:  # the encoder here looks into a dict
            if armed:
                CLOSED[why](bench)
            return 0

    event = Meddler()
    record = bytes(99)
    bench.source._fast = {event: record}.get  # type: ignore[assignment]
    armed = True
    before = sys.getrefcount(record)
    seq = bench.publish(event)
    after = sys.getrefcount(record)
    assert (seq, after) == (-1, before)
    assert bench.log == [("slow", (event,), {})]


def test_not_too_deep(bench: Bench) -> None:
    benches = [Bench() for _ in range(DEPTH + 2)]
    for one, two in pairwise(benches):
        one.then = lambda it=two: it.publish(it.thing)
    assert benches[0].publish(benches[0].thing) == 1
    calm = DEPTH - 1  # one of its elements is always in NEST
    assert [b.flow.seen for b in benches] == [1] * calm + [0] * 3
    assert benches[calm].log == [("slow", (benches[calm].thing,), {})]
    assert all(b.at_rest() for b in benches)


def test_an_exception_goes_to_failed(bench: Bench) -> None:
    bench.then = Sorry("no")
    assert bench.publish(bench.thing) == 1
    assert bench.log == [bench.thing, ("failed", Sorry, "no", bench.thing)] and bench.at_rest()
    bench.then = lambda: [][1]  # type: ignore[misc]
    assert bench.publish(bench.thing) == 2
    assert bench.log[-1] == ("failed", IndexError, "list index out of range", bench.thing) and bench.at_rest()


def test_a_record_that_cannot_be_decoded_goes_to_failed(bench: Bench) -> None:
    bench.spoiled = b"other"
    assert bench.publish(bench.other) == 1
    assert bench.log == [b"other", ("failed", Sorry, "cannot be read", bench.other)] and bench.at_rest()


@pytest.mark.parametrize("error", [KeyboardInterrupt("now"), SystemExit(3), GeneratorExit()], ids=repr)
def test_what_is_no_exception_goes_to_the_caller(bench: Bench, error: BaseException) -> None:
    bench.then = error
    with pytest.raises(type(error)) as caught:
        bench.publish(bench.thing)
    assert caught.value is error
    assert bench.log == [bench.thing] and bench.flow.seen == 1 and bench.at_rest()


def test_what_failed_raises_goes_to_the_caller(bench: Bench) -> None:
    bench.then, bench.then_failed = Sorry("no"), Sorry("worse")
    with pytest.raises(Sorry, match="worse"):
        bench.publish(bench.thing)
    assert bench.at_rest()


@pytest.mark.parametrize("what", ["items", "blocks_bypass"])
def test_what_came_meanwhile_is_seen_to(bench: Bench, what: str) -> None:
    bench.then = lambda: getattr(bench.bypass, what).append(None)
    assert bench.publish(bench.thing) == 1
    assert bench.log == [bench.thing, "told"]
    getattr(bench.bypass, what).clear()
    bench.then_told = Sorry("told")
    with pytest.raises(Sorry, match="told"):
        bench.publish(bench.thing)
    assert bench.flow.seen == 2 and bench.at_rest()


def test_another_sink_from_within_the_function(bench: Bench) -> None:
    new = Bench()

    def swap() -> None:
        bench.flow.bypass = new.bypass

    new.bypass.handler = new.log.append
    bench.then = swap
    assert [bench.publish(bench.thing) for _ in range(3)] == [1, 2, 3]
    assert bench.log == [bench.thing] and new.log == [bench.thing] * 2


def test_the_sink_is_gone_when_the_function_returns() -> None:
    bench = Bench()
    bypass = bench.bypass
    seen = []

    def handler(event: Any) -> None:
        bench.flow.bypass = bench.bypass = None  # type: ignore[assignment]
        gc.collect()
        seen.append(event)

    bypass.handler = handler
    del bypass, handler
    assert bench.publish(bench.thing) == 1
    assert seen == [bench.thing] and NEST == [None]


def test_others_in_the_nest_stay(bench: Bench) -> None:
    early, late = SimpleNamespace(), SimpleNamespace()
    NEST.insert(0, early)
    bench.then = lambda: (NEST.insert(0, late), NEST.append(None))
    assert bench.publish(bench.thing) == 1
    left, NEST[:] = NEST.copy(), [None]
    assert left == [late, early, None, None]


def test_an_encoder_that_raises(bench: Bench) -> None:
    class Unhashable(Thing):
        def __hash__(self) -> int:
            raise Sorry("unhashable")

    with pytest.raises(Sorry, match="unhashable"):
        bench.publish(Unhashable())
    assert bench.flow.seen == 0 and bench.log == []


def test_it_looks_like_a_function(bench: Bench) -> None:
    assert type(bench.publish) is BuiltinFunctionType
    assert bench.publish.__name__ == "publish" and bench.publish.__doc__ == "Publish it."
    assert str(inspect.signature(bench.publish)) == "(event=None, /, **fields)"


def test_only_with_an_encoder_in_machine_code(bench: Bench) -> None:
    bench.source._fast = lambda event: None
    assert WAY.publish(bench.source) is None


# ── records that are put on a list ──


class Judged(Bench):
    """Records go on a list, if the judge wants them: `verdict` is what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[bytes] = []
        self.verdict = 1

        def judge(given: int, record: int, size: int) -> int:
            self.asked.append(ctypes.string_at(given, 3) + ctypes.string_at(record, size))
            return self.verdict

        self.code = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t)(judge)
        address = ctypes.cast(self.code, ctypes.c_void_p).value or 0
        self.out: list[Any] = []
        self.bypass.pending, self.bypass.gap_count, self.bypass.last_queued = self.out, bytearray(8), 0
        self.bypass.judge = address.to_bytes(8, "little") + b"ctl"

    def gaps(self) -> int:
        return int.from_bytes(self.bypass.gap_count, "little")


def test_all_records_go_on_the_list_where_nobody_judges(bench: Bench) -> None:
    bench.bypass.pending = out = []
    assert [bench.publish(bench.thing), bench.publish(bench.other)] == [1, 2]
    assert out == [b"thing", b"other"] and bench.flow.seen == 2
    assert bench.log == ["told"]  # of the first
    bench.bypass.judge = None
    assert bench.publish(bench.thing) == 3 and out == [b"thing", b"other", b"thing"]


def test_the_judge_is_asked_with_what_it_was_made_with() -> None:
    bench = Judged()
    assert bench.publish(bench.thing) == 1
    assert bench.asked == [b"ctlthing"] and bench.out == [b"thing"] and bench.log == ["told"]
    assert (bench.flow.seen, bench.bypass.last_queued, bench.gaps()) == (1, 1, 0)


def test_what_is_not_wanted_is_only_numbered() -> None:
    bench = Judged()
    bench.verdict = 0
    assert [bench.publish(bench.thing) for _ in range(3)] == [1, 2, 3]
    assert bench.out == [] and bench.log == [] and bench.flow.seen == 3 and bench.bypass.last_queued == 0
    assert len(bench.asked) == 3


def test_after_a_gap_the_number_before_goes_first() -> None:
    bench = Judged()
    bench.flow.seen = bench.bypass.last_queued = 1 << 40
    said = []
    for verdict in (1, 0, 1):
        bench.verdict = verdict
        said.append(bench.publish(bench.thing) - (1 << 40))
    assert said == [1, 2, 3]
    assert bench.out == [b"thing", (1 << 40) + 2, b"thing"]
    assert (bench.bypass.last_queued, bench.gaps()) == ((1 << 40) + 3, 1)
    assert bench.log == ["told"]
    bench.out.clear()
    bench.flow.seen += 2  # of which Python knows
    assert bench.publish(bench.thing) == (1 << 40) + 6
    assert bench.out == [(1 << 40) + 5, b"thing"] and bench.gaps() == 2
    assert bench.log == ["told", "told"]  # the list was empty again


def test_where_the_judge_cannot_say_python_does() -> None:
    bench = Judged()
    bench.verdict = 2
    assert bench.publish(bench.thing) == -1
    assert bench.log == [("slow", (bench.thing,), {})] and bench.out == []
    assert (bench.flow.seen, bench.bypass.last_queued, bench.gaps()) == (0, 0, 0)


@pytest.mark.parametrize("why", CLOSED)
def test_nothing_is_judged_where_the_way_is_closed(why: str) -> None:
    bench = Judged()
    CLOSED[why](bench)
    assert bench.publish(bench.thing) == -1 and bench.asked == [] and bench.out == []


def test_what_telling_of_the_first_raises_goes_to_the_caller() -> None:
    bench = Judged()
    bench.then_told = Sorry("told")
    with pytest.raises(Sorry, match="told"):
        bench.publish(bench.thing)
    assert bench.out == [b"thing"] and bench.flow.seen == bench.bypass.last_queued == 1


ATTEMPTS = 5  # what other threads of the process do meanwhile is counted too, now and then; a leak is there every time


def is_kept(things: Sequence[object], run: Callable[[], None]) -> bool:
    """Whether there are about as many references to things, and as many things, as before."""
    gc.collect()
    counts, blocks = [sys.getrefcount(thing) for thing in things], sys.getallocatedblocks()
    run()
    gc.collect()
    after, left = [sys.getrefcount(thing) for thing in things], sys.getallocatedblocks()
    return max(abs(a - b) for a, b in zip(counts, after, strict=True)) < 100 and abs(left - blocks) < 500


@pytest.mark.parametrize("verdicts", [(0,), (1,), (2,), (1, 0), (0, 1, 1)])
def test_nothing_is_leaked_by_judging(verdicts: tuple[int, ...]) -> None:
    bench = Judged()
    bench.source._slow = lambda *args: 1 << 70
    event, record = bench.thing, b"thing"

    def run(count: int) -> None:
        for at in range(count):
            bench.verdict = verdicts[at % len(verdicts)]
            bench.publish(event)
            bench.out.clear()
            bench.asked.clear()
            bench.log.clear()
            if bench.flow.seen & SAMPLE == SAMPLE:
                bench.flow.seen += 1

    things = (None, event, record, bench.bypass, bench.bypass.judge, bench.flow, bench.out)
    run(200)
    assert any(is_kept(things, lambda: run(10_000)) for _ in range(ATTEMPTS))


@pytest.mark.parametrize("way", ["given", "decoded", "slow", "raised", "escaped", "told"])
def test_nothing_is_leaked(way: str) -> None:
    bench = Bench()
    bench.bypass.handler, bench.bypass.decode = (lambda event: object()), (lambda record: object())
    bench.bypass.failed, bench.bypass.after_bypass = (lambda error, event: None), (lambda: bench.bypass.items.clear())
    bench.source._slow = lambda *args: 1 << 70

    def raises(error: type[BaseException]) -> Any:
        def handler(event: Any) -> None:
            raise error(object())

        return handler

    event = bench.other if way == "decoded" else bench.thing
    match way:
        case "slow":
            bench.source._full.add(1)
        case "raised":
            bench.bypass.handler = raises(Sorry)
        case "escaped":
            bench.bypass.handler = raises(KeyboardInterrupt)
        case "told":
            bench.bypass.handler = bench.bypass.items.append

    def run(count: int) -> None:
        for _ in range(count):
            with suppress(KeyboardInterrupt):
                bench.publish(event)

    things = (
        None,
        event,
        bench.bypass,
        bench.bypass.handler,
        bench.source,
        bench.flow,
        bench.bypass.token,
        b"thing",
        b"other",
    )
    run(200)
    assert any(is_kept(things, lambda: run(20_000)) for _ in range(ATTEMPTS))
