"""Many entries: keys, rows of bits, merged segments and removed entries, each against the plain way."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from headwater.interest import Interest
from headwater.match import Matcher
from headwater.types import EventType, event_type
from headwater.types import model as m
from tests.match.support import Beside

READING = event_type(
    m.Record(
        "Reading",
        (
            m.Field("network", m.TEXT),
            m.Field("station", m.TEXT, optional=True),
            m.Field("level", m.F64),
            m.Field("depth", m.F32, optional=True),
            m.Field("count", m.I32),
            m.Field("code", m.U64, optional=True),
            m.Field("urgent", m.BOOL),
            m.Field("at", m.TIMESTAMP),
        ),
    )
)


def texts(rng: random.Random) -> str:
    """A random condition; some terms are for native code."""
    terms = [
        lambda: f"network = 'net{rng.randrange(60)}'",
        lambda: f"network = 'net{rng.randrange(60)}'",
        lambda: f"station = 's{rng.randrange(40)}'",
        lambda: f"network like 'net{rng.randrange(6)}%'",
        lambda: f"station in ('s{rng.randrange(40)}', 's{rng.randrange(40)}', 'x')",
        lambda: f"not (network in ('net{rng.randrange(3)}', 'net{rng.randrange(60)}'))",
        lambda: f"level > {rng.random():.3f}",
        lambda: f"level between {(a := rng.random()):.3f} and {a + rng.random() / 4:.3f}",
        lambda: f"depth < {rng.randrange(8) / 4}",
        lambda: f"not (depth >= {rng.randrange(8) / 4})",
        lambda: f"count = {rng.randrange(-20, 20)}",
        lambda: f"count != {rng.randrange(-3, 3)}",
        lambda: f"code >= {rng.randrange(2**63, 2**63 + 9)}",
        lambda: f"code = {rng.randrange(50)}",
        lambda: rng.choice(("urgent", "not urgent", "station is null", "depth is not null")),
        lambda: f"at > timestamp '2020-01-0{rng.randrange(1, 9)}'",
        lambda: f"level * 2 > {rng.randrange(3)}",
        lambda: f"count % {rng.randrange(2, 4)} = 1",
    ]
    return " and ".join(rng.choice(terms)() for _ in range(rng.randrange(1, 4)))


def event(rng: random.Random) -> dict[str, Any]:
    return {
        "network": rng.choice((f"net{rng.randrange(60)}", "", "net", "net1")),
        "station": rng.choice((None, f"s{rng.randrange(40)}", "x")),
        "level": rng.choice((rng.random(), round(rng.random(), 3), float("nan"), -0.0, float("inf"))),
        "depth": rng.choice((None, rng.randrange(8) / 4, 0.1, float("nan"))),
        "count": rng.choice((rng.randrange(-20, 20), -(2**31))),
        "code": rng.choice((None, rng.randrange(50), 2**63 + rng.randrange(9), 2**64 - 1)),
        "urgent": rng.random() < 0.5,
        "at": 1_577_836_800_000_000 + rng.randrange(10) * 86_400_000_000,
    }


@pytest.mark.parametrize("plan", ["auto", "scan", "index"])
@pytest.mark.parametrize("seed", [1, 2])
def test_many_conditions(plan: Any, seed: int) -> None:
    """They come in several goes, some leave again, and old counts are kept."""
    rng = random.Random(seed)
    beside = Beside(READING, plan=plan)
    for size in (5, 90, 300, 20):
        for _ in range(size):
            beside.add(Interest(texts(rng), READING))
        for key in rng.sample(sorted(beside.interests), size // 4):
            beside.remove(key)
        beside.check([event(rng) for _ in range(8)])
    assert len(beside.matcher) == len(beside.interests)
    assert 1 <= len(beside.matcher.plan) <= 4


def wide(dims: int) -> EventType:
    """Many optional numbers."""
    return event_type(
        m.Record("Wide", tuple(m.Field(f"d{i}", (m.F64, m.I32)[i % 2], optional=True) for i in range(dims)))
    )


@pytest.mark.parametrize("dims,exact", [(3, 0), (60, 0), (60, 10**9), (120, 0)])
def test_ranges_in_bulk(dims: int, exact: int) -> None:
    rng = np.random.default_rng(dims)
    type, count, each = wide(dims), 6000, 3
    which = np.concatenate([rng.choice(dims, each, replace=False) for _ in range(count)])
    owners = np.repeat(np.arange(count), each)
    low = rng.integers(0, 30, count * each).astype(float)
    high = np.where(rng.random(count * each) < 0.4, low, low + rng.integers(-1, 20, count * each))
    for plan in ("index", "scan"):
        matcher = Matcher(type, exact_undecided=exact, plan=plan)  # type: ignore[arg-type]
        keys = matcher.add_ranges(
            range(count), [f"d{i}" for i in range(dims)], owners=owners, which=which, low=low, high=high
        )
        assert len(matcher) == len(keys) == count
        matching = matcher.snapshot()
        undecided = np.zeros(count, int)
        for _ in range(12):
            values = np.where(rng.random(dims) < 0.6, rng.integers(0, 40, dims).astype(float), np.nan)
            raw = {f"d{i}": None if np.isnan(v) else float(v) if i % 2 == 0 else int(v) for i, v in enumerate(values)}
            seen = values[which]
            missing = np.isnan(seen).reshape(count, each)
            true = ((seen >= low) & (seen <= high)).reshape(count, each)
            found = matching.match(type.encode(raw))
            assert sorted(found) == np.flatnonzero(true.all(axis=1)).tolist()
            undecided += (true | missing).all(axis=1) & missing.any(axis=1)
        if exact:
            assert [matcher.counts(key)[0] for key in keys] == undecided.tolist()
            assert {matcher.unsplit(key) for key in keys} == {0}
        else:
            assert {matcher.counts(key)[0] for key in keys} == {0}
            assert {matcher.unsplit(key) for key in keys} == {12}


def test_removing_from_many() -> None:
    rng = random.Random(3)
    matcher = Matcher(READING)
    keys = [matcher.add(n, Interest(f"network = 'net{n % 100}'", READING)) for n in range(1000)]
    record = READING.encode(event(rng) | {"network": "net7"})
    before = matcher.snapshot()
    assert sorted(before.match(record)) == list(range(7, 1000, 100))
    for key in keys[:500]:
        matcher.remove(key)
    with pytest.raises(KeyError):
        matcher.remove(keys[0])
    assert sorted(before.match(record)) == list(range(7, 1000, 100))
    assert sorted(matcher.snapshot().match(record)) == list(range(507, 1000, 100))
    for key in keys[500:]:
        matcher.remove(key)
    assert matcher.snapshot().match(record) == ()
    assert len(matcher) == 0 and matcher.plan == []


def test_endless_change_takes_no_more_memory() -> None:
    """Slots of counters and numbers of native code are used again."""
    matcher = Matcher(READING)
    record = READING.encode(event(random.Random(4)))
    sizes = []
    for round in range(60):
        made = [matcher.add(n, Interest(f"count % 7 = {n % 7} or level > {round}.5", READING)) for n in range(20)]
        matcher.snapshot().match(record)
        for key in made:
            matcher.remove(key)
        matcher.snapshot()
        sizes.append(matcher.nbytes)
    assert sizes[-1] == sizes[10]
