"""What an interest is as code: how long its text, its serial form and its machine code are, and how long they take."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter

import msgspec

from headwater.interest import Interest
from headwater.native.program import asm
from headwater.native.record import RecordCode
from headwater.study.badges.subscribers import Subscriber
from headwater.study.report.data import CodeFacts

TRIES = 3  # the quickest counts: the others waited for something else


def code_facts(interest: Interest, *, name: str | None = None, shared_by: int = 1) -> CodeFacts:
    """Of one interest, measured here and now; it is compiled anew, whatever was compiled before."""
    checked, compiled, size = [], [], 0
    serial = interest.dumps(with_text=False)
    for _ in range(TRIES):
        started = perf_counter()
        analysis = Interest.loads(serial, interest.params, limits=interest.limits).executed
        checked.append(perf_counter() - started)
        started = perf_counter()
        code = RecordCode(analysis).code
        compiled.append(perf_counter() - started)
        size = code.size
    lines = asm(interest.executed).splitlines()
    return CodeFacts(
        name=name or interest.text,
        notation=interest.notation,
        text=interest.text.strip(),
        lines=len([line for line in interest.text.splitlines() if line.strip()]),
        serial_bytes=len(serial),
        text_bytes=len(interest.text.encode()),
        param_bytes=len(msgspec.msgpack.encode(interest.params)) if interest.params else 0,
        object_bytes=size,
        instructions=sum(line.startswith("\t") and not line.startswith("\t.") for line in lines),
        check_seconds=min(checked),
        compile_seconds=min(compiled),
        cost=interest.cost.estimated,
        shared_by=shared_by,
    )


def programs(subscribers: Iterable[Subscriber]) -> list[tuple[Subscriber, Interest, int]]:
    """Those that differ as programs: the first subscriber with each, its interest, and how many have the same.

    Equal programs with other parameters share their machine code."""
    found: dict[bytes, tuple[Subscriber, Interest]] = {}
    count: dict[bytes, int] = {}
    for each in subscribers:
        interest = each.interest()
        found.setdefault(interest.fingerprint, (each, interest))
        count[interest.fingerprint] = count.get(interest.fingerprint, 0) + 1
    return [(each, interest, count[key]) for key, (each, interest) in found.items()]
