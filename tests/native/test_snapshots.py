"""The state of a run is taken at an exact point, and another run goes on from there: in any execution and process."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import msgspec
import pytest

from headwater import Interest, Node, runnable
from headwater.errors import ExecutionError, SerialError
from headwater.ir import interp
from headwater.ir.state import dump_state, load_state
from headwater.runnable import Runnable, Runner, Snapshot
from headwater.version import VERSION
from tests.federation.nursery import run

TYPE = "n: i64, level: f64, maybe: f64?, big: u64, at: timestamp"
INTERESTS = {
    "counts": "{ static int n = 0; n = n + 1; return n % 3 == 0; }",
    "changes": "{ static double last = -1e9; if (fabs(input.level - last) > 2.5) { last = input.level; return 1; } "
    "return 0; }",
    "arrays": "{ static long seen[7]; seen[input.n % 7] = seen[input.n % 7] + 1; return seen[input.n % 7] % 2 == 0; }",
    "kinds": "{ static bool odd = false; static timestamp last; static double sum = 0; static unsigned long top = 0; "
    "odd = !odd; if (input.big > top) { top = input.big; } sum = sum + input.maybe; last = input.at; "
    "return odd && top > 5; }",
}
OUTPUT = (
    "{ static double sum = 0; static long n = 0; sum += input.level; n++; "
    "output.mean = sum / n; output.n = n; return 1; }"
)


def events(count: int = 40) -> list[dict[str, Any]]:
    return [
        {
            "n": i * i,
            "level": float(i * 7 % 11),
            "maybe": None if i == 9 else float("nan") if i == 21 else i / 3,
            "big": (1 << 63) + i if i > 30 else i,
            "at": 1_700_000_000_000_000 + i,
        }
        for i in range(count)
    ]


class ByInterpreter:
    """The reference, over the same program that machine code is made of."""

    def __init__(self, interest: Interest) -> None:
        self._interest = interest
        self._program = interest.executed.program
        self._state = interp.initial_state(self._program)

    def judge(self, part: list[dict[str, Any]]) -> list[Any]:
        found = []
        for event in part:
            raw = self._interest.type.to_raw(event)
            made = interp.run(self._program, raw, params=self._interest.params, state=self._state)
            found.append((made.status, None if made.output is None or not made.passed else dict(made.output)))
        return found

    def snapshot(self, positions: dict[str, int]) -> bytes:
        state = dump_state(self._program, self._state)
        return runnable.snapshot(runnable.INTEREST, self._interest.fingerprint, positions, state)

    def restore(self, data: bytes) -> dict[str, int]:
        found = runnable.read_snapshot(data, runnable.INTEREST, self._interest.fingerprint)
        self._state = load_state(self._program, found.state)
        return found.positions


class ByRecord:
    def __init__(self, interest: Interest) -> None:
        self._interest, self.native = interest, interest.start().wait()

    def judge(self, part: list[dict[str, Any]]) -> list[Any]:
        found = []
        for event in part:
            made = self.native.run(self._interest.type.encode(event))
            output = None
            if made.output is not None and self._interest.output is not None:
                output = self._interest.output.decode_raw(made.output)
            found.append((made.status, output))
        return found

    def snapshot(self, positions: dict[str, int]) -> bytes:
        return self.native.snapshot(positions)

    def restore(self, data: bytes) -> dict[str, int]:
        return self.native.restore(data)


class ByBatch(ByRecord):
    def judge(self, part: list[dict[str, Any]]) -> list[Any]:
        if not part:
            return []
        made = self.native.batch(self._interest.type.batch_of(part))
        verdicts = {True: interp.Status.PASSED, False: interp.Status.REJECTED, None: interp.Status.UNDECIDED}
        statuses = [verdicts[each] for each in made.selection.to_pylist()]
        outputs = iter([] if made.output is None or self._interest.output is None else
                       self._interest.output.arrow_to_raw(made.output))  # fmt: skip
        passed = interp.Status.PASSED
        return [(s, next(outputs) if s is passed and made.output is not None else None) for s in statuses]


EXECUTIONS = (ByInterpreter, ByRecord, ByBatch)


def interests() -> list[Interest]:
    found = [Interest(text, TYPE) for text in INTERESTS.values()]
    return [*found, Interest(OUTPUT, TYPE, output="mean: f64, n: i64")]


def test_an_interest_is_a_runnable() -> None:
    wanted: Runnable = Interest("level > 1", TYPE)
    running: Runner = wanted.start()
    assert wanted.kind == "interest" and not wanted.stateful and wanted.partition == () and wanted.output is None
    assert running.restore(running.snapshot({"a": 3})) == {"a": 3}  # there is nothing to remember but where it was
    assert interests()[0].stateful


def test_a_run_goes_on_from_a_snapshot_as_if_nothing_had_been() -> None:
    for interest in interests():
        told = events()
        whole = ByInterpreter(interest).judge(told)
        for before, after in product(EXECUTIONS, EXECUTIONS):
            for point in (0, 1, 10, 22, len(told)):
                first, second = before(interest), after(interest)
                found = first.judge(told[:point])
                second.judge(told[5:9])  # whatever it has done before
                assert second.restore(first.snapshot({"lab/door": point})) == {"lab/door": point}
                assert found + second.judge(told[point:]) == whole, (interest, before, after, point)


CONTINUED = """
import sys
from headwater import Interest
interest = Interest(sys.argv[1], sys.argv[2])
native = interest.start()
positions = native.restore(bytes.fromhex(sys.argv[3]))
[(source, point)] = positions.items()
for n in range(point, 40):
    native_passes = native.test(interest.type.encode(
        {"n": n * n, "level": float(n * 7 % 11), "maybe": None, "big": n, "at": 1_700_000_000_000_000 + n}))
    print(source, n, int(native_passes))
"""


def test_a_run_goes_on_in_another_process() -> None:
    text = INTERESTS["arrays"]
    interest = Interest(text, TYPE)
    native, whole = interest.start(), []
    for n, event in enumerate(events()):
        if n == 17:
            taken = native.snapshot({"lab/door": n})
        whole.append(f"lab/door {n} {int(native.test(interest.type.encode(event)))}")
    ran = run([sys.executable, "-c", CONTINUED, text, TYPE, taken.hex()], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == whole[17:]


def test_a_source_hands_on_the_state_of_its_interests() -> None:
    def running(node: Node, passed: list[int]) -> tuple[Any, Any, Any]:
        channel = node.channel("t.c", TYPE)
        channel.subscribe(lambda event: passed.append(event.n), INTERESTS["arrays"], dispatch="inline")
        source = channel.source("door")
        [flow] = channel.flows()
        [entry] = flow.route.alone
        return source, flow, entry

    whole: list[int] = []
    parts: list[int] = []
    with Node() as node:
        source, _, _ = running(node, whole)
        for event in events():
            source.publish(event)
    with Node() as node, Node() as other:
        source, flow, entry = running(node, parts)
        for event in events()[:23]:
            source.publish(event)
        with source.lock:
            taken = flow.snapshot(entry)
        source, flow, entry = running(other, parts)
        with source.lock:
            assert flow.restore(entry, taken) == 23
        for event in events()[23:]:
            source.publish(event)
    assert parts == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fingerprint": b"x" * 16}, "a run goes on from its own state only"),
        ({"kind": "pattern"}, "found that of pattern"),
        ({"format": 99}, f"found 99, of another version of Headwater than {VERSION}"),
        ({"positions": {"a": -1}}, "expected sequence numbers by source"),
        ({"state": b""}, "expected that of a program"),
        ({"state": msgspec.msgpack.encode([])}, "expected 1 variables, found 0"),
        ({"state": msgspec.msgpack.encode([[1, 2]])}, "expected 1 values of 'n', found 2"),
        ({"state": msgspec.msgpack.encode([[1.5]])}, "expected a value of type i64 for 'n', found 1.5"),
        ({"state": msgspec.msgpack.encode([[True]])}, "found True"),
        ({"state": msgspec.msgpack.encode([[1 << 63]])}, "expected a value of type i64"),
        ({"state": msgspec.msgpack.encode([["text"]])}, "expected that of a program"),
    ],
)
def test_what_is_no_snapshot_of_it_is_refused_and_changes_nothing(change: dict[str, Any], message: str) -> None:
    native = Interest(INTERESTS["counts"], TYPE).start()
    good = native.snapshot({"a": 1})
    bad = msgspec.structs.replace(msgspec.msgpack.decode(good, type=Snapshot), **change).dumps()
    native.set_state({0: 7})
    with pytest.raises(ExecutionError, match=r"snapshot|state") as raised:
        native.restore(bad)
    assert message in str(raised.value)
    assert native.get_state() == {0: 7}
    assert native.restore(good) == {"a": 1} and native.get_state() == {0: 0}


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x90", msgspec.msgpack.encode([1, 2]), msgspec.msgpack.encode("x")])
def test_bytes_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(ExecutionError, match="snapshot: expected"):
        Interest(INTERESTS["counts"], TYPE).start().restore(data)


def test_kinds_are_known_by_name() -> None:
    interest = Interest("level > :limit", TYPE, params={"limit": 1.0})
    assert runnable.loads("interest", interest.dumps(), {"limit": 2.0}).params == {"limit": 2.0}
    with pytest.raises(
        SerialError, match=rf"kinds that Headwater {VERSION} runs, which are .*interest.*, found 'policy'"
    ):
        runnable.loads("policy", interest.dumps(), {})
    with pytest.raises(SerialError, match="found it registered"):
        runnable.register("interest", lambda data, params: None)
