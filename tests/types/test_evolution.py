"""Evolution: every pair of types that fits converts alike in all forms, and the others say why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headwater.errors import EvolutionError
from headwater.types import event_type, parse_record, plan
from headwater.types import model as m
from tests.effort import examples
from tests.strategies import raw_events, records, same

WIDER = {
    "i8": ("i16", "i32", "i64", "f32", "f64"),
    "i16": ("i32", "i64", "f32", "f64"),
    "i32": ("i64", "f64"),
    "u8": ("u16", "u32", "u64", "i16", "i32", "i64", "f32", "f64"),
    "u16": ("u32", "u64", "i32", "i64", "f32", "f64"),
    "u32": ("u64", "i64", "f64"),
    "f32": ("f64",),
}


@pytest.mark.parametrize("source", m.SCALARS)
@pytest.mark.parametrize("target", m.SCALARS)
def test_every_pair_of_scalars(source: str, target: str) -> None:
    before = m.Record("A", (m.Field("a", m.SCALARS[source]),))
    after = m.Record("B", (m.Field("a", m.SCALARS[target]),))
    if source == target or target in WIDER.get(source, ()):
        value = {"bool": True, "text": "1", "bytes": b"1"}.get(source, 1)
        converted = plan(before, after).convert(event_type(before).encode({"a": value}))
        assert event_type(after).decode_raw(converted)["a"] == value
    else:
        with pytest.raises(EvolutionError, match=f"a: expected {target}.*, found {source}"):
            plan(before, after)


@st.composite
def targets(draw: st.DrawFn, source: m.Type) -> m.Type:
    """A type that can be filled from `source`."""
    match source:
        case m.Scalar(name=name):
            return m.SCALARS[draw(st.sampled_from((name, *WIDER.get(name, ()))))]
        case m.Enum(name=name, members=members):
            names = draw(st.permutations([*(n for n, _ in members), "ADDED"]))
            return m.Enum(name, tuple((n, i * 3) for i, n in enumerate(names)))
        case m.Array(element=element, shape=shape):
            return m.Array(draw(targets(element)), shape)
        case m.List(element=element):
            return m.List(draw(targets(element)))
        case m.Record(name=name, fields=fields):
            kept = draw(st.lists(st.sampled_from(fields), unique=True, max_size=len(fields)))
            made = [m.Field(f.name, draw(targets(f.type)), f.optional or draw(st.booleans())) for f in kept]
            made.append(m.Field("added", m.List(m.TEXT), True))
            return m.Record(name + "2", tuple(draw(st.permutations(made))))


def project(source: m.Type, target: m.Type, raw: Any) -> Any:
    """What conversion means, said plainly."""
    if raw is None:
        return None
    match source, target:
        case m.Record(), m.Record():
            return {
                f.name: project(source.by_name[f.name].type, f.type, raw[f.name]) if f.name in source.by_name else None
                for f in target.fields
            }
        case m.Enum(), m.Enum():
            return target.code_of(str(source.name_of(raw)))
        case (m.Array(), m.Array()) | (m.List(), m.List()):
            if isinstance(source, m.Array) and len(source.shape) > 1:
                inner = replace(source, shape=source.shape[1:]), replace(target, shape=source.shape[1:])
                return tuple(project(*inner, item) for item in raw)
            return tuple(project(source.element, target.element, item) for item in raw)  # type: ignore[union-attr]
        case _, m.Scalar() if target.name in ("f32", "f64"):
            return float(raw)
    return raw


@settings(deadline=None, max_examples=examples(150))
@given(st.data())
def test_converting_is_projecting(data: st.DataObject) -> None:
    source = data.draw(records())
    target = data.draw(targets(source))
    assert isinstance(target, m.Record)
    raws = data.draw(st.lists(raw_events(source), max_size=3))
    found = plan(source, target)
    before, after = event_type(source), event_type(target)
    expected = [project(source, target, raw) for raw in raws]
    for raw, wanted in zip(raws, expected, strict=True):
        converted = found.convert(before.encode(raw))
        after.validate(converted)
        assert same(after.decode_raw(converted), wanted)
    batch = found.convert_batch(before.to_arrow(raws))
    assert batch.schema.equals(after.schema, check_metadata=True)
    assert same(after.arrow_to_raw(batch), expected)
    assert all(field.name in found.explain() for field in target.fields)


@settings(deadline=None, max_examples=examples(100))
@given(records(), records())
def test_any_two_types_fit_or_say_why_not(source: m.Record, target: m.Record) -> None:
    assume(source != target)
    try:
        found = plan(source, target)
    except EvolutionError as error:
        assert error.problems
        assert all(problem.split(":")[0].split(".")[0].split("[")[0] in target.by_name for problem in error.problems)
    else:
        assert not found.identity


def test_equal_types_cost_nothing() -> None:
    record = parse_record("a: i32, b: text?")
    found = plan(record, parse_record("a: i32, b: text?"))
    data = event_type(record).encode(a=1)
    assert found.identity
    assert found.convert(data) is data
    batch = event_type(record).to_arrow([{"a": 1}])
    assert found.convert_batch(batch) is batch
    assert "stay as they are" in found.explain()
    assert plan(record, record) is plan(parse_record("a: i32, b: text?"), record)


def test_every_offending_field_is_listed() -> None:
    source = parse_record(
        "a: i64, b: text, c: f64[2, 3], d: {x: i32?, y: text}, e: enum(A, B), f: i16[], g: u64, h: f64, i: i32[]"
    )
    target = parse_record(
        "a: i32, b: bytes, c: f64[3, 2], d: {x: i32, z: bool}, e: enum(A, C), f: i8[], g: i64, h: f32, i: i32[2], "
        "new: bool"
    )
    with pytest.raises(EvolutionError) as caught:
        plan(source, target)
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "a",
        "b",
        "c",
        "d.x",
        "d.z",
        "e",
        "f[]",
        "g",
        "h",
        "i",
        "new",
    ]
    text = str(caught.value)
    assert "d.x: required, but optional in the source" in text
    assert "member B of" in text
    assert "this loses values" in text


def test_a_plan_explains_itself() -> None:
    found = plan(
        parse_record("a: i32, b: text, c: f32, gone: bool", "Old"),
        parse_record("a: i64, b: text?, c: f32, new: bool?", "New"),
    )
    assert found.explain().splitlines() == [
        "Old becomes New",
        "  a: i32 widened to i64",
        "  b: text as it is, now optional",
        "  c: f32 as it is",
        "  new: missing, the source does not have it",
        "  gone: left out",
    ]
