"""Statements to LLVM: control flow, assignments and the verdict, over the expression writer."""

from __future__ import annotations

from typing import Any

from headwater.ir.interp import Fault
from headwater.ir.nodes import (
    Assign,
    AssignElem,
    Block,
    Break,
    Continue,
    CopyOut,
    If,
    Loop,
    Return,
    SetOut,
    Stmt,
)
from headwater.native.codegen.expr import Exprs
from headwater.native.codegen.stage_writer import StageWriter
from headwater.native.emit import Val

REJECTED, PASSED, UNDECIDED = 0, 1, 2


class Stmts:
    """Writes the body of a program for one event. `fuel` is the i64 each event starts with."""

    def __init__(self, g: Exprs, analysis: Any, writer: StageWriter | None, fuel: str) -> None:
        self.g, self.fn, self.analysis, self.writer = g, g.fn, analysis, writer
        self.verdict, self.decided = g.fn.alloca("i1"), g.fn.alloca("i1")
        self.fuel_start, self.fuel = fuel, g.fn.alloca("i64")
        self.done = ""
        self.may_miss = writer is not None  # whether an event may end undecided
        self.loops: list[tuple[str, str]] = []  # labels of break and continue

    def event(self, body: Block) -> None:
        """The whole body; afterwards `verdict` and `decided` hold."""
        fn = self.fn
        fn.store("i32", "0", self.g.faults, 4)
        fn.store("i1", "false", self.verdict)
        fn.store("i1", "true", self.decided)
        fn.store("i64", self.fuel_start, self.fuel, 8)
        self.g.places.reset()
        if self.writer is not None:
            self.writer.begin()
        self.done = fn.label("done")
        self.block(body)
        fn.at(self.done)

    def status(self) -> str:
        """i32: passed, rejected or undecided. For a transformation, passed only when complete."""
        fn = self.fn
        true, decided = fn.load("i1", self.verdict), fn.load("i1", self.decided)
        if self.writer is None:
            said = fn.v(f"zext i1 {true} to i32")
        else:
            said = fn.select(true, "i32", fn.select(self.writer.complete(), "i32", "1", "2"), "0")
        return fn.select(decided, "i32", said, str(UNDECIDED))

    def block(self, block: Block) -> None:
        for stmt in block:
            if self.fn.ended:
                return
            self.stmt(stmt)

    def safe(self, stmt: Stmt) -> bool:
        return self.analysis is not None and not self.analysis.stmt_fault(stmt)

    def stmt(self, stmt: Stmt) -> None:
        """Code for a statement."""
        g, fn = self.g, self.fn
        match stmt:
            case Assign(slot=slot, value=value):
                g.places.write(slot, None, g.eval(value))
            case AssignElem(slot=slot, indices=indices, value=value):
                new = g.eval(value)
                at, ok = g.offset(slot, indices, self.safe(stmt))
                if ok is None:
                    g.places.write(slot, at, new)
                else:
                    fn.branch(ok, lambda: g.places.write(slot, at, new))
            case SetOut() | CopyOut():
                assert self.writer is not None
                self.writer.set(g, stmt, self.safe(stmt))
            case If(test=test, then=then, other=other):
                self.choose(g.eval(test), then, other)
            case Loop():
                self.loop(stmt)
            case Break():
                fn.br(self.loops[-1][0])
            case Continue():
                fn.br(self.loops[-1][1])
            case Return(value=value):
                self.end(g.eval(value))

    def end(self, value: Val) -> None:
        self.may_miss = self.may_miss or value.ok is not None
        self.fn.store("i1", value.x, self.verdict)
        self.fn.store("i1", value.ok or "true", self.decided)
        self.fn.br(self.done)

    def choose(self, test: Val, then: Block, other: Block) -> None:
        fn = self.fn
        yes, end = fn.label("then"), fn.label("fi")
        no = fn.label("else") if other else end
        fn.cbr(fn.and_(test.ok, test.x) or "true", yes, no if test.ok is None or not other else f"{no}q")
        if test.ok is not None and other:
            fn.at(f"{no}q")
            fn.cbr(fn.and_(test.ok, fn.not_(test.x)) or "true", no, end)
        fn.at(yes)
        self.block(then)
        fn.br(end)
        if other:
            fn.at(no)
            self.block(other)
            fn.br(end)
        fn.at(end)

    def loop(self, loop: Loop) -> None:
        """Code for a loop. One whose rounds the analysis could not bound burns fuel; a bound that only well-formed
        events keep is checked."""
        fn = self.fn
        head, body, step, end = fn.label("loop"), fn.label("body"), fn.label("step"), fn.label("out")
        rounds = ""
        if loop.bound is not None and not self.g.facts.firm:
            rounds = fn.alloca("i64")
            fn.store("i64", str(loop.bound), rounds, 8)
        fn.at(head)
        test = self.g.eval(loop.test)
        fn.cbr(fn.and_(test.ok, test.x) or "true", body, end)
        fn.at(body)
        if loop.bound is None:
            self.burn(self.fuel, Fault.FUEL)
        elif rounds:  # no well-formed event makes more rounds than that
            self.burn(rounds, Fault.MALFORMED)
        self.loops.append((end, step))
        self.block(loop.body)
        fn.br(step)
        fn.at(step)
        self.loops[-1] = (step, step)  # what a step says about the loop is not heard
        self.block([s for s in loop.step if not isinstance(s, Break | Continue)])  # type: ignore[arg-type]
        self.loops.pop()
        fn.br(head)
        fn.at(end)

    def burn(self, stock: str, fault: Fault) -> None:
        """One unit of what there is, or the end of this event."""
        fn = self.fn
        empty, go = fn.label("empty"), fn.label("go")
        left = fn.load("i64", stock, 8)
        fn.cbr(fn.v(f"icmp eq i64 {left}, 0"), empty, go)
        fn.at(empty)
        self.g.fault(fault, "true", None)
        self.end(Val("false", "false"))
        fn.at(go)
        fn.store("i64", fn.v(f"sub i64 {left}, 1"), stock, 8)
