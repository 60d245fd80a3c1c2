"""What a pattern's matches are, straight from the chapter in docs/semantics.md: slow, obvious, and by definition right.

Everything is enumerated: all ways to go through the expression, over all rows. Conditions are asked of the reference
interpreter. Of the patterns' room this knows the model and nothing else.

    events = [{"channel": "door", "source": "n1", "seq": 0, "time": 5, "fields": {"who": "ann"}}, …]
    oracle.matches(pattern, events)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.ir import interp
from headwater.ir.interp import EventContext, Status
from headwater.patterns import model
from headwater.patterns.model import Step
from headwater.types.model import F64, I64, U64, Record, Type, promote

# ── what comes out ──


@dataclass(frozen=True)
class Match:
    """`events` are labels with the channel, source and number of the event; `time` is that of the last, or the deadline
    until which something was absent."""

    events: tuple[tuple[str, tuple[str, str, int]], ...]
    time: int
    deadline: int | None = None
    key: tuple[Any, ...] = ()
    result: Any = field(default=None, compare=False)


@dataclass
class Judged:
    """The matches of all partitions, by time, and what was counted."""

    matches: list[Match]
    timeless: int = 0  # events without a time
    keyless: int = 0  # rows that belong to no partition
    late: int = 0  # rows that came too late
    unskipped: int = 0  # matches after which there was no row of the element to go on from


# ── rows ──


@dataclass(frozen=True)
class Row:
    """An event of a partition, at its place."""

    at: int
    channel: str
    raw: Mapping[str, Any]
    meta: EventContext
    time: int

    @property
    def origin(self) -> tuple[str, str, int]:
        assert self.meta.source is not None and self.meta.seq is not None
        return self.channel, _who(self.meta.source, self.meta.node), self.meta.seq


def _passes(interest: Any, raw: Mapping[str, Any], meta: EventContext | None = None) -> interp.Outcome:
    return interp.run(interest.program, raw, meta=meta, params=interest.params)


def _fits_alone(pattern: model.Pattern, element: int, row: Row) -> bool:
    it = pattern.elements[element]
    if row.channel not in it.channels:
        return False
    return it.condition is None or _passes(it.condition, row.raw, row.meta).passed


def _is_row(pattern: model.Pattern, channel: model.Channel, row: Row) -> bool:
    if any(_fits_alone(pattern, element, row) for element in range(len(pattern.elements))):
        return True
    return channel.all if channel.among is None else _passes(channel.among, row.raw, row.meta).passed


def _partitions(pattern: model.Pattern, events: Iterable[Mapping[str, Any]], judged: Judged) -> dict[Any, list[Row]]:
    """The rows of each partition, in order."""
    channels = {channel.name: channel for channel in pattern.channels}
    found: dict[Any, list[Row]] = {}
    placed = _placed(pattern, [event for event in events if event["channel"] in channels], judged)
    for time, _, _, name, raw, meta, late in sorted(placed, key=lambda each: each[:4]):
        channel = channels[name]
        if not _is_row(pattern, channel, Row(0, name, raw, meta, time)):
            continue
        key: tuple[Any, ...] = ()
        if channel.key is not None:
            outcome = _passes(channel.key, raw, meta)
            if outcome.status is not Status.PASSED or outcome.output is None:
                judged.keyless += 1
                continue
            key = tuple(outcome.output.values())
        if late:
            judged.late += 1
            continue
        rows = found.setdefault(key, [])
        rows.append(Row(len(rows), name, raw, meta, time))
    return found


def _who(source: str, node: str | None) -> str:
    """Sources of one name at two nodes are two; they are in the order of names, then of nodes."""
    return source if not node else source + "\0" + node


def _placed(pattern: model.Pattern, events: list[Mapping[str, Any]], judged: Judged) -> list[Any]:
    """Events that have a time, and whether they are late: older than one that their source sent before, by more than
    the lateness that is allowed."""
    channels = {channel.name: channel for channel in pattern.channels}
    latest: dict[tuple[str, str], int] = {}  # a source counts in each channel by itself
    found = []
    for event in sorted(events, key=lambda event: (event["source"], event["seq"], event["channel"])):
        channel, source = channels[event["channel"]], event["source"]
        who = _who(source, event.get("node"))
        raw = channel.type.to_raw(event["fields"])
        meta = EventContext(source, event.get("node"), event["seq"], event["time"])
        time = event["time"]
        if channel.time is not None:
            outcome = _passes(channel.time, raw, meta)
            time = outcome.output["time"] if outcome.passed and outcome.output else None
        if time is None:
            judged.timeless += 1
            continue
        sender = event["channel"], who
        late = sender in latest and time < latest[sender] - pattern.lateness
        latest[sender] = max(time, latest.get(sender, time))
        found.append((time, who, event["seq"], event["channel"], raw, meta, late))
    return found


# ── what an expression goes on with ──


@dataclass(frozen=True)
class Take:
    """An element with which an expression can go on, the step to it, and what is left then. Where nothing has been
    taken yet, `step` is what was passed over: parts that may be left out."""

    element: int
    step: Step | None
    rest: Any


END = None  # in the place of a Take: nothing more is needed


@dataclass(frozen=True)
class Done:
    pass


@dataclass(frozen=True)
class InSequence:
    """Within a part; `parts` come after it, the first by `steps[0]`."""

    rest: Any
    parts: tuple[Any, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class InRepeat:
    """Within a round; so many more are needed, and may follow."""

    rest: Any
    repeat: model.Repeat
    least: int
    most: int | None


@dataclass(frozen=True)
class InBoth:
    """What is left of each part; the last event was of part `last`."""

    rests: tuple[Any, ...]
    last: int
    step: Step


def _joined(before: Step, after: Step | None) -> Step:
    """Two steps that become one, because what was between them is left out."""
    if after is None:
        return before
    return Step(after.selection, tuple(sorted({*before.forbidden, *after.forbidden})))


def _once(items: list[Take | None]) -> list[Take | None]:
    """With one END at most."""
    found: list[Take | None] = []
    for item in items:
        if item is not END or END not in found:
            found.append(item)
    return found


def items(node: Any) -> list[Take | None]:
    """All ways to go on, the preferred first, with END where it can stop."""
    match node:
        case Done():
            return [END]
        case model.Leaf(element=element):
            return [Take(element, None, Done())]
        case model.Either(parts=parts):
            return _once([item for part in parts for item in items(part)])
        case model.Sequence(parts=parts, steps=steps):
            return _sequence(parts, steps)
        case InSequence(rest=rest, parts=parts, steps=steps):
            return _in_sequence(rest, parts, steps)
        case model.Repeat():
            return _rounds(node, node.least, node.most, None)
        case InRepeat(rest=rest, repeat=repeat, least=least, most=most):
            found: list[Take | None] = []
            for item in items(rest):
                if item is END:
                    found += _rounds(repeat, least, most, repeat.step)
                else:
                    found.append(Take(item.element, item.step, InRepeat(item.rest, repeat, least, most)))
            return _once(found)
        case model.Both(parts=parts, step=step):
            return _both(parts, None, step)
        case InBoth(rests=rests, last=last, step=step):
            return _both(rests, last, step)
    raise AssertionError(node)


def _sequence(parts: tuple[Any, ...], steps: tuple[Step, ...]) -> list[Take | None]:
    found: list[Take | None] = []
    for item in items(parts[0]):
        if item is not END:
            found.append(Take(item.element, item.step, InSequence(item.rest, parts[1:], steps)))
        elif len(parts) == 1:
            found.append(END)
        else:
            for later in _sequence(parts[1:], steps[1:]):
                found.append(END if later is END else Take(later.element, _joined(steps[0], later.step), later.rest))
    return _once(found)


def _in_sequence(rest: Any, parts: tuple[Any, ...], steps: tuple[Step, ...]) -> list[Take | None]:
    found: list[Take | None] = []
    for item in items(rest):
        if item is not END:
            found.append(Take(item.element, item.step, InSequence(item.rest, parts, steps)))
        elif not parts:
            found.append(END)
        else:
            for later in _sequence(parts, steps[1:]):
                found.append(END if later is END else Take(later.element, _joined(steps[0], later.step), later.rest))
    return _once(found)


def _rounds(repeat: model.Repeat, least: int, most: int | None, step: Step | None) -> list[Take | None]:
    """Another round, by `step` if it is not the first, and the end."""
    begins = items(repeat.part)
    again: list[Take | None] = []
    if most is None or most > 0:
        for item in begins:
            if item is not END:
                by = item.step if step is None else _joined(step, item.step)
                left = None if most is None else most - 1
                again.append(Take(item.element, by, InRepeat(item.rest, repeat, least - 1, left)))
    may_end = least <= 0 or END in begins
    if not may_end:
        return again
    return [*again, END] if repeat.greedy else [END, *again]


def _both(parts: tuple[Any, ...], last: int | None, step: Step) -> list[Take | None]:
    """Parts from left to right; what a part prefers to its end comes before the end of all, the rest after."""
    sooner: list[Take | None] = []
    later: list[Take | None] = []
    may_end = True
    for at, part in enumerate(parts):
        ended = False
        for item in items(part):
            if item is END:
                ended = True
                continue
            by = item.step if last is None or at == last else step
            rest = InBoth((*parts[:at], item.rest, *parts[at + 1 :]), at, step)
            (later if ended else sooner).append(Take(item.element, by, rest))
        may_end = may_end and ended
    return [*sooner, *([END] if may_end else []), *later]


# ── what is taken ──

Taken = tuple[tuple[int, Row], ...]


def _value(type: Type, values: list[Any], kind: str) -> Any:
    """An aggregate of the values that are there."""
    if kind == "values":
        return len(values)
    if kind == "sum":
        return _sum(promote(type), values)
    if not values:
        return None
    if kind == "mean":
        total = 0.0
        for value in values:
            total += float(value)
        return total / len(values)
    best = values[0]
    for value in values[1:]:
        if math.isnan(best) or math.isnan(value):
            best = math.nan
        elif value < best if kind == "min" else value > best:
            best = value
    return best


def _sum(type: Type, values: list[Any]) -> Any:
    total: Any = 0.0 if type == F64 else 0
    for value in values:
        total += value
        if type in (I64, U64):
            low, high = (-(1 << 63), (1 << 63) - 1) if type == I64 else (0, (1 << 64) - 1)
            if not low <= total <= high:
                return None
    return total


def _record(pattern: model.Pattern, record: Record, views: Iterable[model.View], taken: Taken) -> dict[str, Any]:
    """What a condition reads of the events taken so far."""
    found: dict[str, Any] = {}
    for view, member in zip(views, record.fields, strict=True):
        assert member.name == view.member
        names = {at for at, element in enumerate(pattern.elements) if element.name == view.name}
        names |= {at for subset in pattern.subsets if subset.name == view.name for at in subset.elements}
        rows = [row for element, row in taken if element in names]
        fields = member.type.fields if isinstance(member.type, Record) else ()
        if view.kind == "count":
            found[view.member] = len(rows)
        elif view.kind in ("latest", "first", "prev"):
            at = {"latest": len(rows) - 1, "first": 0, "prev": len(rows) - 2}[view.kind]
            whole = {f.name: rows[at].raw[f.name] for f in fields} if 0 <= at < len(rows) else None
            found[view.member] = whole
        elif view.kind == "meta":
            meta = rows[-1].meta if rows else None
            found[view.member] = {f.name: getattr(meta, f.name) for f in fields} if meta else None
        else:
            of = pattern.elements[min(names)].type.record.by_name
            found[view.member] = {
                f.name: _value(of[f.name].type, [v for row in rows if (v := row.raw[f.name]) is not None], view.kind)
                for f in fields
            }
    return found


def fits(pattern: model.Pattern, element: int, row: Row, taken: Taken) -> bool:
    """Whether a row can be taken for an element, after what was taken."""
    if not _fits_alone(pattern, element, row):
        return False
    now = (*taken, (element, row))
    for variable in pattern.variables:
        places = dict(variable.fields)
        values = [row.raw[places[at]] for at, row in now if at in places]
        if element in places and any(value != values[0] for value in values):
            return False
    have = {at for at, _ in now}
    for condition in pattern.conditions:
        if element in condition.elements and set(condition.elements) <= have:
            raw = _record(pattern, condition.interest.type.record, condition.views, now)
            if not _passes(condition.interest, raw).passed:
                return False
    return True


class _Stream:
    """One partition."""

    def __init__(self, pattern: model.Pattern, rows: list[Row]) -> None:
        self.pattern, self.rows = pattern, rows

    def candidates(self) -> Iterator[Taken]:
        """All occurrences in the order of their first row and of preference, each once."""
        first = items(self.pattern.root)
        for row in self.rows:
            begins = [item for item in first if item is not END and fits(self.pattern, item.element, row, ())]
            seen: set[Any] = set()
            for item in begins:
                for taken in self.extend(((item.element, row),), item.rest):
                    mark = tuple((element, row.at) for element, row in taken)
                    if mark not in seen:
                        seen.add(mark)
                        yield taken
            if begins and self.pattern.begin == "first":
                return

    def extend(self, taken: Taken, rest: Any) -> Iterator[Taken]:
        ways = items(rest)
        end = ways.index(END) if END in ways else len(ways)
        yield from self.go_on(taken, ways[:end], ways)
        if END in ways:
            yield taken
        yield from self.go_on(taken, ways[end + 1 :], ways)

    def go_on(self, taken: Taken, preferred: list[Take | None], ways: list[Take | None]) -> Iterator[Taken]:
        """By some of the ways: the earliest row first, and at one row by preference."""
        for row in self.rows[taken[-1][1].at + 1 :]:
            if not self.within(taken[0][1], row):
                return
            for item in preferred:
                if item is not END and self.reaches(taken, item, row, ways):
                    yield from self.extend((*taken, (item.element, row)), item.rest)

    def reaches(self, taken: Taken, item: Take, row: Row, ways: list[Take | None]) -> bool:
        step = item.step
        assert step is not None
        between = self.rows[taken[-1][1].at + 1 : row.at]
        if step.selection == "strict" and between:
            return False
        if step.selection == "next":
            others = [other.element for other in ways if other is not END]
            if any(fits(self.pattern, other, each, taken) for each in between for other in others):
                return False
        if any(fits(self.pattern, other, each, taken) for each in between for other in step.forbidden):
            return False
        return fits(self.pattern, item.element, row, taken)

    def within(self, first: Row, row: Row) -> bool:
        window = self.pattern.window
        if window is None:
            return True
        if window.microseconds is not None:
            return row.time - first.time <= window.microseconds
        assert window.rows is not None
        return row.at - first.at + 1 <= window.rows

    # ── absence ──

    def deadline(self, taken: Taken) -> int | None:
        """Until when something must be absent; None if that is not known yet."""
        window, first = self.pattern.window, taken[0][1]
        assert window is not None
        if window.microseconds is not None:
            return first.time + window.microseconds
        assert window.rows is not None
        last = first.at + window.rows - 1
        return self.rows[last].time if last < len(self.rows) else None

    def refuted(self, taken: Taken) -> bool:
        first, last = taken[0][1], taken[-1][1]
        later = [row for row in self.rows[last.at + 1 :] if self.within(first, row)]
        return any(fits(self.pattern, element, row, taken) for row in later for element in self.pattern.absent)


def _row_of(pattern: model.Pattern, taken: Taken) -> int | None:
    """The row of the first or last event of the element to go on from; None if it took none."""
    rows = [row.at for element, row in taken if element in pattern.after.elements]
    if not rows:
        return None
    return rows[0] if pattern.after.rule == "first" else rows[-1]


def _floor(pattern: model.Pattern, taken: Taken, judged: Judged) -> int:
    """The first row at which another match may begin."""
    first, last = taken[0][1].at, taken[-1][1].at
    match pattern.after.rule:
        case "no skip":
            return 0
        case "next":
            return first + 1
        case "past last":
            return last + 1
    row = _row_of(pattern, taken)
    if row is None or row <= first:
        judged.unskipped += 1
        return first + 1
    return row


def _result(pattern: model.Pattern, taken: Taken) -> Any:
    measures = pattern.measures
    if measures is not None:
        raw = _record(pattern, measures.interest.type.record, measures.views, taken)
        return _passes(measures.interest, raw).output
    found: dict[str, Any] = {}
    for at, element in enumerate(pattern.elements):
        if not element.negative:
            events = [dict(row.raw) for each, row in taken if each == at]
            found[element.name] = events if element.multiple else events[0] if events else None
    return found


def judge(pattern: model.Pattern, events: Iterable[Mapping[str, Any]], promised: int | None = None) -> Judged:
    """The matches of these events. `promised` is the time that every source has promised beyond: that no further event
    comes with a time before it; None: nothing more comes at all."""
    judged = Judged([])
    for key, rows in _partitions(pattern, events, judged).items():
        stream = _Stream(pattern, rows)
        floor, used = 0, set[int]()
        for taken in stream.candidates():
            if taken[0][1].at < floor:
                continue
            if not pattern.reuse and any(row.at in used for _, row in taken):
                continue
            deadline = None
            if pattern.absent:
                if stream.refuted(taken):
                    continue
                deadline = stream.deadline(taken)
                waits = pattern.window is not None and pattern.window.rows is None and promised is not None
                if deadline is None or (waits and promised is not None and promised <= deadline):
                    if pattern.after.rule == "no skip" and pattern.reuse:
                        continue
                    break  # what comes after it depends on it
            used |= {row.at for _, row in taken}
            floor = max(floor, _floor(pattern, taken, judged))
            labelled = tuple((pattern.elements[element].name, row.origin) for element, row in taken)
            time = taken[-1][1].time if deadline is None else deadline
            judged.matches.append(Match(labelled, time, deadline, key, _result(pattern, taken)))
    judged.matches.sort(key=lambda match: (match.time, match.events))
    return judged


def matches(pattern: model.Pattern, events: Iterable[Mapping[str, Any]], promised: int | None = None) -> list[Match]:
    return judge(pattern, events, promised).matches
