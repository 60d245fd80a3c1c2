"""The executable interest: tiers that answer alike, parameters, state, counts, threads, and code that goes away."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from headwater.errors import ExecutionError, ParameterError
from headwater.ir.build import Builder
from headwater.ir.interp import EventContext, Fault, Status
from headwater.ir.nodes import NOWHERE, Expr, ParamDecl, Program
from headwater.native import Native, asm, cache, compile_async, compile_record, llvm_ir
from headwater.types import EventType
from headwater.types import model as m
from tests.effort import examples, rounds
from tests.native.support import Events, agree, analysis_of, interpret
from tests.programs import FUEL, Case, cases

READING = m.Record(
    "Reading",
    (m.Field("level", m.F64), m.Field("n", m.I32), m.Field("net", m.TEXT), m.Field("spare", m.I64, True)),
)
SOURCE = EventType(READING)
N = NOWHERE


def reading(level: float = 0.0, n: int = 0, net: str = "", spare: int | None = None) -> bytes:
    return SOURCE.encode({"level": level, "n": n, "net": net, "spare": spare})


def predicate(make: Any, *params: ParamDecl) -> Program:
    b = Builder(READING, params=params)
    return b.finish(b.return_(make(b), N))


def simple(b: Builder) -> Expr:
    level = b.compare("gt", b.field("level", N), b.const(0.5), N)
    return b.logic("and", [level, b.compare("eq", b.field("n", N), b.const(7), N)], N)


def counter() -> Program:
    """Every third event."""
    b = Builder(READING)
    seen = b.declare("seen", m.I32, N, state=True)
    assert seen is not None
    more = b.assign(seen, b.binary("add", b.var(seen, N), b.const(1), N), N)
    third = b.binary("tmod", b.var(seen, N), b.const(3), N)
    return b.finish([*more, *b.return_(b.compare("eq", third, b.const(0), N), N)])


def test_a_conjunction_starts_as_a_table_and_becomes_native() -> None:
    cache.clear()
    interest = Native(predicate(simple))
    assert interest.tier in ("table", "native")
    early = interest.test  # held on to while the tier changes
    answers = [interest.test(reading(0.75, 7)), interest.test(reading(0.75, 8))]
    assert interest.wait(60).tier == "native"
    answers += [interest.test(reading(0.75, 7)), interest.test(reading(0.25, 7)), early(reading(0.75, 7))]
    assert answers == [True, False, True, False, True]
    assert interest.counts.passed == 3 and interest.counts.rejected == 2 and interest.counts.evaluated == 5


def test_anything_else_starts_in_the_interpreter() -> None:
    cache.clear()
    interest = Native(predicate(lambda b: b.compare("gt", b.call("length", [b.field("net", N)], N), b.const(2), N)))
    assert interest.tier in ("interpreter", "native")
    assert [interest.test(reading(net=net)) for net in ("abc", "é")] == [True, False]
    interest.wait(60)
    assert [interest.test(reading(net=net)) for net in ("abc", "é")] == [True, False]
    assert interest.run(b"nonsense").faults == Fault.MALFORMED
    counts = interest.counts
    assert (counts.passed, counts.rejected, counts.undecided) == (2, 2, 1)
    assert counts.faults == {Fault.MALFORMED: 1}


@settings(deadline=None, max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(cases(transforming=True, libm=False))
def test_all_tiers_agree(case: tuple[Case, Events]) -> None:
    made, events = case
    analysis = analysis_of(made)
    if analysis is None:
        return
    expected, _ = interpret(analysis, made, events)
    output = EventType(analysis.program.output) if analysis.program.output is not None else None
    interest = Native(analysis, raw_params=made.params, fuel=FUEL)
    source = EventType(analysis.program.input)
    half = len(events) // 2
    for i, ((event, meta), wanted) in enumerate(zip(events, expected, strict=True)):
        if i == half:
            interest.wait(60)  # the state goes on in native code
        got = interest.run(source.encode(event), meta)
        assert agree((got.status, got.faults, got.output), wanted, output), (got, wanted, made)


def test_parameters_change_between_events() -> None:
    decls = (ParamDecl("least", "scalar", m.F64), ParamDecl("nets", "set", m.TEXT))

    def make(b: Builder) -> Expr:
        level = b.compare("ge", b.field("level", N), b.param("least", N), N)
        return b.logic("and", [level, b.in_param(b.field("net", N), "nets", N)], N)

    interest = Native(predicate(make, *decls), params={"least": 0.5, "nets": {"a", "b"}})
    for _ in range(2):
        assert interest.test(reading(0.5, net="a"))
        interest.set_params(least=0.75)
        assert not interest.test(reading(0.5, net="a"))
        interest.set_params(least=0.25, nets={"c", "é", ""})
        answers = [interest.test(reading(0.5, net=net)) for net in ("a", "c", "é", "", "cc")]
        assert answers == [False, True, True, True, False]
        interest.wait(60).set_params(least=0.5, nets={"a"})
    with pytest.raises(ParameterError, match="did you mean 'least'"):
        interest.set_params(leest=1.0)
    with pytest.raises(ParameterError, match="least"):
        interest.set_params(least="high")
    assert interest.params["least"] == 0.5


def test_parameters_of_a_table_change() -> None:
    program = predicate(
        lambda b: b.compare("eq", b.field("net", N), b.param("net", N), N), ParamDecl("net", "scalar", m.TEXT)
    )
    interest = Native(program, params={"net": "a"})
    assert interest.test(reading(net="a"))
    interest.set_params(net="longer")
    assert interest.test(reading(net="longer")) and not interest.test(reading(net="a"))


def test_state_goes_on_through_tiers_and_batches() -> None:
    cache.clear()
    interest = Native(counter())
    answers = [interest.test(reading()) for _ in range(2)]
    interest.wait(60)
    answers += [interest.test(reading()) for _ in range(2)]
    batch = SOURCE.records_to_arrow([reading()] * 5)
    answers += interest.batch(batch).selection.to_pylist()
    assert answers == [i % 3 == 2 for i in range(9)]
    assert interest.get_state() == {0: 9}
    interest.new_state()
    assert interest.get_state() == {0: 0} and interest.counts.evaluated == 9


def test_two_interests_share_code_and_not_state() -> None:
    first, second = Native(counter()).wait(60), Native(counter()).wait(60)
    assert [first.test(reading()) for _ in range(3)] == [False, False, True]
    assert not second.test(reading())


def test_meta_is_given_with_each_event() -> None:
    program = predicate(lambda b: b.compare("eq", b.meta("source", N), b.const("roof"), N))
    interest = Native(program).wait(60)
    assert interest.run(reading(), EventContext(source="roof")).passed
    assert interest.run(reading(), EventContext(source="cellar")).status is Status.REJECTED
    assert interest.run(reading()).status is Status.UNDECIDED


@pytest.mark.parametrize(
    "make", [simple, lambda b: b.compare("gt", b.call("length", [b.field("net", N)], N), b.const(0), N)]
)
def test_threads_may_share_an_interest(make: Any) -> None:
    interest = Native(predicate(make))
    records = [reading(0.75, 7, "x"), reading(0.25, 7, "")]
    wrong: list[Any] = []

    def work() -> None:
        for i in range(2000):
            if interest.test(records[i % 2]) is not (i % 2 == 0):
                wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    interest.wait(60)
    for thread in threads:
        thread.join()
    assert not wrong
    assert interest.counts.passed == interest.counts.rejected == 4000


def test_stateful_threads_lose_nothing() -> None:
    interest = Native(counter())
    threads = [threading.Thread(target=lambda: [interest.test(reading()) for _ in range(300)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    interest.wait(60)
    for thread in threads:
        thread.join()
    assert interest.get_state() == {0: 1200} and interest.counts.passed == 400


def test_other_buffers_are_records_too() -> None:
    program = compile_record(predicate(simple))
    record = reading(0.75, 7)
    for data in (bytearray(record), memoryview(record)):
        assert program(data) == Status.PASSED and program.run(data).passed
    with pytest.raises(TypeError):
        program("not bytes")


def test_equal_programs_are_compiled_once() -> None:
    cache.clear()
    first = compile_async(predicate(simple)).result(60)
    assert compile_async(predicate(simple)).result(60) is first
    assert cache.size() == 1


def test_code_goes_when_it_is_let_go() -> None:
    def compile_some(count: int) -> None:
        for i in range(count):
            program = predicate(lambda b, i=i: b.compare("gt", b.field("n", N), b.const(i), N))
            assert compile_record(program)(reading(n=i + 1)) == Status.PASSED
        cache.clear()
        gc.collect()

    compile_some(40)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    compile_some(160)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 << 10  # KiB


def test_the_cache_keeps_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    monkeypatch.setattr(cache, "LIMIT", 3)
    kept = [compile_record(predicate(lambda b, i=i: b.compare("lt", b.field("n", N), b.const(i), N))) for i in range(5)]
    assert cache.size() == 3
    assert [program(reading(n=2)) for program in kept] == [0, 0, 0, 1, 1]


def test_machine_code_can_be_shown() -> None:
    program = predicate(simple)
    assert "ret" in asm(program)
    assert "@run(" in llvm_ir(program)
    assert "@rows" in llvm_ir(program, kind="batch", optimised=False)


def test_a_batch_must_be_a_record_batch() -> None:
    interest = Native(predicate(simple))
    interest.wait(60)
    with pytest.raises(ExecutionError, match="RecordBatch"):
        interest.batch([1, 2, 3])


FORKING = """
import os, sys
sys.path[:0] = {path!r}
from tests.native.test_program import Native, counter, predicate, reading, simple, SOURCE
Native(predicate(simple)).wait(60)
big = SOURCE.records_to_arrow([reading(0.75, 7)] * 300)
child = os.fork()
if child == 0:
    interest = Native(counter()).wait(60)
    answers = [interest.test(reading()) for _ in range(3)]
    passed = Native(predicate(simple)).batch(big).counts.passed
    os._exit(0 if answers == [False, False, True] and passed == 300 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_compiles_for_itself() -> None:
    script = FORKING.format(path=sys.path)
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", script], timeout=100).returncode == 0


def test_first_use_by_many_threads_at_once() -> None:
    """In a fresh process nothing is compiled yet; whoever comes first makes it for all."""
    script = """
import threading
from headwater import Interest
interest = Interest("a > 3 and b = 'x'", "a: i64, b: text")
record = interest.type.encode({"a": 4, "b": "x"})
barrier = threading.Barrier(8)
answers = []
def work():
    barrier.wait()
    native = interest.native()
    answers.append([native.test(record) for _ in range(1000)] + [native.wait().test(record)])
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(answers) == 8 and all(map(all, answers))
"""
    for _ in range(rounds(2, 5)):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=480)
