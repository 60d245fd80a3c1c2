"""An interest or a pattern explained to a person: what it means, what it costs, and what it becomes where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.extras import how_to_install, installed
from headwater.interest import Interest
from headwater.ir.nodes import Binary, Cast, Elem, Expr, Load, Loop, Unary
from headwater.ir.show import show
from headwater.ir.walk import all_expressions, statements
from headwater.types.model import BOOL, F64, INTEGERS, Field, Record

if TYPE_CHECKING:
    from headwater.patterns.explanation import Explanation
    from headwater.patterns.pattern import Pattern


def explain(interest: Interest | Pattern, *, asm: bool = False, llvm: bool = False) -> str:
    """A page of plain text; of an interest the machine code and LLVM's IR on request."""
    if not isinstance(interest, Interest):
        return str(explain_pattern(interest))
    from headwater.native import program as native

    kind = f"transformation to {interest.output.name}" if interest.output else "filter"
    parts = [
        _part(f"{kind} of {interest.type.name}, in {_NOTATION[interest.notation]}", interest.text.strip()),
        _part(_type_title("input", interest.type.record), _fields(interest.type.record)),
    ]
    if interest.output:
        parts.append(_part(_type_title("output", interest.output.record), _fields(interest.output.record)))
    if interest.params:
        lines = [
            f"{p.name}: {p.kind} of {p.type}{f' to {p.value}' if p.value else ''}" for p in interest.program.params
        ]
        parts.append(_part("parameters", "\n".join(lines)))
    if interest.warnings:
        parts.append(_part("warnings", "\n".join(map(str, interest.warnings))))
    parts += [
        _part(f"normal form, fingerprint {interest.fingerprint.hex()}", show(interest.normal)),
        _part("cost", _cost(interest)),
        _part("checks", _checks(interest)),
        _part("executions", _executions(interest)),
        _part("IR, as checked", show(interest.program)),
    ]
    if llvm:
        parts.append(_part("LLVM IR", native.llvm_ir(interest.executed)))
    if asm:
        code = [line for line in native.asm(interest.executed).splitlines() if line and not line.startswith("\t.")]
        count = sum(line.startswith("\t") for line in code)
        parts.append(_part(f"machine code, one record, {count} instructions", "\n".join(code).expandtabs(8)))
    return "\n\n".join(parts)


_NOTATION = {"predicate": "predicate text", "ecode": "E-Code", "python": "Python", "": "serial form"}


def _part(title: str, body: str) -> str:
    return "\n".join([title, *(f"  {line}" if line else "" for line in body.splitlines())])


def _type_title(what: str, record: Record) -> str:
    return f"{what} type {record.name}, fingerprint {record.fingerprint:016x}"


def _fields(record: Record) -> str:
    width = max(len(field.name) for field in record.fields)
    return "\n".join(f"{field.name:<{width}}  {_stored(field)}" for field in record.fields)


def _stored(field: Field) -> str:
    return f"{field.type}{', optional' if field.optional else ''}"


def _cost(interest: Interest) -> str:
    cost = interest.cost
    return (
        f"estimated {cost.estimated:,} and at worst {cost.worst:,} operations an event; "
        f"{cost.memory:,} bytes of memory\n"
        f"one unit is one {cost.unit}; limits: {interest.limits.max_worst:,} operations, "
        f"{interest.limits.fuel:,} iterations of fuel"
    )


def _checks(interest: Interest) -> str:
    """What can go wrong while it runs: proven impossible, or checked for each event."""
    analysis = interest.executed
    kinds: dict[str, list[bool]] = {}
    for expr in all_expressions(analysis.program.body):
        kind = _can_fault(expr)
        if kind is not None:
            kinds.setdefault(kind, []).append(analysis.fact(expr).fault)
    lines = [f"{kind}: {checked.count(False)} proven, {checked.count(True)} checked" for kind, checked in kinds.items()]
    loops = [stmt.bound for stmt in statements(analysis.program.body) if isinstance(stmt, Loop)]
    if loops:
        bounds = ", ".join(f"{bound:,}" for bound in loops if bound is not None)
        lines.append(f"loops: {f'at most {bounds} iterations' if bounds else 'none proven'}"
                     f"{f'; {loops.count(None)} on fuel' if None in loops else ''}")  # fmt: skip
    return "\n".join(lines) or "nothing in it can go wrong"


def _can_fault(expr: Expr) -> str | None:
    match expr:
        case Load(path=path) if not all(isinstance(step, str) for step in path.steps):
            return "index in range"
        case Elem():
            return "index in range"
        case Binary(op="div" | "tdiv" | "tmod" | "fdiv" | "fmod"):
            return "divisor not zero"
        case Binary(op="add" | "sub" | "mul" | "shl" | "shr", type=type) | Unary(op="neg", type=type) if type != F64:
            return "result fits"
        case Cast(a=a, to=to) if to in INTEGERS and a.type != BOOL:
            return "result fits"
    return None


def _executions(interest: Interest) -> str:
    """Where and how the interest would be run: by which of the four executions, and why."""
    from headwater.native.program import needs_code
    from headwater.native.table import table_for

    table = table_for(interest.normal, params=interest.params)
    first = f"{'a table-driven kernel' if table else 'the interpreter'} at once, native code as soon as it is compiled"
    if not table and needs_code(interest.executed, interest.limits.fuel):
        first = "native code, which the first event waits for: the interpreter might take long"
    lines = [
        "interpreter   always; it is the meaning",
        f"one record    {first}",
        "batch         native code over Arrow buffers",
    ]
    from headwater.spark import choice

    chosen = choice(interest)
    lines.append(f"Spark         as {chosen.kind}: {chosen.reason}")
    if chosen.sql:
        lines.append(f"              {chosen.sql}")
    if not installed("spark"):
        lines.append(f"              PySpark is not installed here: {how_to_install('spark')}")
    return "\n".join(lines)


# ── patterns ──


def explain_pattern(pattern: Pattern) -> Explanation:
    """`pattern.explain()`, and how Spark would run it."""
    from headwater.patterns.explanation import Explanation

    return Explanation(pattern, (("Spark", _pattern_on_spark(pattern)),))


def _pattern_on_spark(pattern: Pattern) -> str:
    from headwater.spark import pattern_choice

    chosen = pattern_choice(pattern)
    lines = [f"over a log: {chosen}"]
    if not installed("spark"):
        lines.append(f"PySpark is not installed here: {how_to_install('spark')}")
    return "\n".join(lines)


__all__ = ["explain", "explain_pattern"]
