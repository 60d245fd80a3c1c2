"""From a pattern as it was written to one that can run: names, types, order and bounds, all problems at once.

channels    every atom's channel is one of the catalogue's, or a pattern that stands for some of them
tree        elements are named, `without` becomes what steps forbid (`tree.py`)
conditions  taken apart into what is asked of one event and what is asked of several (`scope.py`, `expressions.py`)
keys        partitions, also those that variables imply; time; what counts as a row
whole       whether it can match at all, what it may hold, and whether that has a bound (`verify.py`)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from headwater.errors import ParameterError, PatternError, Problem
from headwater.interest import Interest, as_event_type
from headwater.ir.build import Builder
from headwater.ir.nodes import Compare, Expr, IsMissing, Load, ParamDecl, Path, Program, Span, Unary
from headwater.ir.notes import is_bad
from headwater.ir.params import declare
from headwater.ir.uses import by_use, is_flexible
from headwater.patterns import model, structure, written
from headwater.patterns.checker.expressions import Expressions, is_alone
from headwater.patterns.checker.scope import Named, Scope, ScopedBuilder, paths_of, view_of
from headwater.patterns.checker.tree import Grown, grow
from headwater.patterns.checker.verify import remarks, verify, windows
from headwater.patterns.checker.window import MAX_TIME, as_window
from headwater.patterns.result import MATCH, derived, is_result, with_match
from headwater.types import EventType, event_type
from headwater.types.model import BOOL, F64, Field, List, Record, Type, describe, promote

RESULT = "Match"  # the name of a result's type, unless the caller has another
MAX_PARTS = 16  # of a partition's key
MAX_MEASURES = 500


def check(
    pattern: written.Pattern,
    channels: Mapping[str, Any],
    *,
    params: Mapping[str, Any] | None = None,
    limits: model.Limits | None = None,
    result: str = RESULT,
) -> model.Pattern:
    """The checked pattern, or a PatternError with every problem. `channels` are those that there are, each with its
    type; `result` is the name of the type of its matches."""
    given = dict(params or {})
    types = {name: as_event_type(type) for name, type in channels.items()}
    decls = declare(given)
    if any(is_flexible(decl, given[decl.name]) for decl in decls):
        decls = _as_used(pattern, types, given, decls, limits, result)
    it = _Check(pattern, types, Expressions(pattern.text, decls, dict(given)), limits or model.Limits(), result)
    found = it.run()
    if found is not None and len(it.expressions.decls) > len(decls):  # functions have parameters of their own
        meant = by_use(
            Program(Record("Elements", ()), None, it.expressions.decls, (), tuple(it.expressions.seen)),
            it.expressions.params,
        )
        if meant != it.expressions.decls:
            it = _Check(pattern, types, Expressions(pattern.text, meant, dict(given)), it.limits, result)
            found = it.run()
    if found is None or it.expressions.problems:
        raise PatternError(in_order(it.expressions.problems))
    _check_used(given, it.expressions.used)
    return found


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """As they stand in the text, each once."""
    found = {(problem.line, problem.column, problem.message): problem for problem in reversed(list(problems))}
    return tuple(found[key] for key in sorted(found))


def check_parts(pattern: written.Pattern, channels: Mapping[str, Any], params: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with the atoms of a pattern that could not be read as a whole: its channels and conditions."""
    types = {name: as_event_type(type) for name, type in channels.items()}
    it = _Check(pattern, types, Expressions(pattern.text, declare(params), dict(params)), model.Limits(), RESULT)
    it.run(whole=False)
    return it.expressions.problems


def _as_used(
    pattern: written.Pattern,
    types: Mapping[str, EventType],
    given: dict[str, Any],
    decls: tuple[ParamDecl, ...],
    limits: model.Limits | None,
    result: str,
) -> tuple[ParamDecl, ...]:
    """The parameters with the types that their uses ask for, in all conditions together."""
    look = _Check(
        pattern, types, Expressions(pattern.text, decls, dict(given), settled=False), limits or model.Limits(), result
    )
    look.run()
    return by_use(Program(Record("Elements", ()), None, decls, (), tuple(look.expressions.seen)), given)


def _check_used(given: Mapping[str, Any], used: set[str]) -> None:
    for name in given:
        if name not in used:
            close = get_close_matches(name, sorted(used), 1)
            hint = f"did you mean {close[0]!r}?" if close else f"it reads {', '.join(sorted(used)) or 'none'}"
            raise ParameterError(f"no parameter {name!r} in this pattern: remove it from params=, or use it; {hint}")


@dataclass
class _Binding:
    """A variable at one place."""

    element: int
    field: str
    type: Type
    span: Span


class _Check:
    """One pass over one pattern."""

    def __init__(
        self,
        pattern: written.Pattern,
        types: Mapping[str, EventType],
        expressions: Expressions,
        limits: model.Limits,
        result: str,
    ) -> None:
        self.written, self.types, self.expressions = pattern, types, expressions
        self.limits, self.result = limits, result

    def run(self, *, whole: bool = True) -> model.Pattern | None:
        """The checked pattern, or None where there were problems; all that can be found are noted before.
        `whole=False` checks elements and conditions only, of a text of which some channels are not known."""
        grown = grow(self.written, self.types, self.expressions)
        if grown is None:
            return None
        self.grown: Grown = grown
        self.elements = list(grown.elements)
        self.atoms = grown.atoms
        self.order = structure.order(grown.root, grown.absent)
        self.loose = structure.repeated_by_any(grown.root)
        self.subsets = self._subsets()
        bindings = self._bindings()
        keys, shared = self._keys(bindings)
        conditions = self._conditions(bindings, shared)
        if grown.unknown or not whole:
            return None
        channels, key = self._channels(keys)
        window = as_window(self.written.window, self.expressions)
        begin = self.written.begin or self._default_begin(window)
        output, measures = self._measures(bindings)
        after = self._after()
        self._check_durations()
        found = model.Pattern(
            channels=channels,
            elements=tuple(self.elements),
            root=grown.root,
            absent=grown.absent,
            conditions=tuple(conditions),
            variables=self._variables(shared, keys),
            subsets=self.subsets,
            window=window,
            begin=begin,
            after=after,
            reuse=self.written.reuse,
            lateness=self.written.lateness,
            patience=self.written.patience,
            key=key,
            output=output,
            measures=measures,
            limits=self.limits,
            params=dict(self.expressions.params),
            text=self.written.text,
            notation=self.written.notation,
        )
        if self.expressions.problems:  # what is asked is not all there, but how it is put together can be looked at
            if self.written.window is None or window is not None:
                self.expressions.problems += windows(found)
            return None
        self.expressions.problems += verify(found)
        return replace(found, warnings=(*self.expressions.warnings, *remarks(found)))

    def _default_begin(self, window: model.Window | None) -> written.Begin:
        """Without a window, once: but of single events nothing has to be remembered."""
        return "each" if window is not None or structure.most(self.grown.root) == 1 else "first"

    # ── names ──

    def _subsets(self) -> tuple[model.Subset, ...]:
        """The names for several elements together. Their events are read through one name, so they are of one type."""
        index = {element.name: at for at, element in enumerate(self.elements) if not element.negative}
        found = []
        for name, members in self.written.subsets.items():
            unknown = [member for member in members if member not in index]
            places = tuple(index[member] for member in members if member in index)
            if name in index:
                self.expressions.problem(Span(0, 0), f"the subset {name!r} is called like an element", hint="rename it")
            elif unknown or not places:
                hint = self._near(unknown[0], index) if unknown else "name its elements"
                self.expressions.problem(
                    Span(0, 0), f"the subset {name!r} has no element {(unknown or [''])[0]!r}", hint=hint
                )
            elif len({self.elements[place].type.record for place in places}) > 1:
                self.expressions.problem(
                    Span(0, 0),
                    f"the subset {name!r} has elements of different types",
                    expected="one type",
                    hint="name elements of one channel",
                )
            else:
                found.append(model.Subset(name, places))
        return tuple(found)

    def _near(self, name: str, known: Any) -> str:
        close = get_close_matches(name, list(known), 1)
        return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(list(known)[:12]) or 'none'}"

    def _bindings(self) -> dict[str, list[_Binding]]:
        """Variables, each with the places that bind it."""
        found: dict[str, list[_Binding]] = {}
        for at, atom in enumerate(self.atoms):
            if at in self.grown.unknown:
                continue
            record = self.elements[at].type.record
            for name, argument in self._arguments(at, atom):
                if isinstance(argument.value, written.Variable):
                    type = promote(record.by_name[name].type)
                    if not _is_scalar(type):
                        self.expressions.problem(
                            argument.value.span,
                            f"the variable {argument.value.name!r} cannot be bound here",
                            expected="a field with a single value",
                            found=describe(type),
                        )
                        continue
                    found.setdefault(argument.value.name, []).append(_Binding(at, name, type, argument.value.span))
        for name, places in found.items():
            self._check_binding(name, places)
        return found

    def _check_binding(self, name: str, places: list[_Binding]) -> None:
        for place in places[1:]:
            if place.type != places[0].type:
                self.expressions.problem(
                    place.span,
                    f"the variable {name!r} has two types",
                    expected=describe(places[0].type),
                    found=describe(place.type),
                    hint="one variable means one value: use another name and compare the two in a condition",
                )

    def _arguments(self, at: int, atom: written.Atom) -> list[tuple[str, written.Argument]]:
        """The arguments of a template, each with its field; those that have none are left out (`tree.py` told)."""
        names = [f.name for f in self.elements[at].type.record.fields]
        found = []
        for position, argument in enumerate(atom.arguments or ()):
            name = argument.field if argument.field is not None else names[position] if position < len(names) else None
            if name in self.elements[at].type.record.by_name:
                assert name is not None
                found.append((name, argument))
        return found

    # ── partitions ──

    def _keys(
        self, bindings: Mapping[str, list[_Binding]]
    ) -> tuple[dict[str, dict[str, str]], dict[str, list[_Binding]]]:
        """Variables that are keys, each with its field by channel, and all that mean equality: bound by two elements,
        or by one that may take several events."""
        keys: dict[str, dict[str, str]] = {}
        shared: dict[str, list[_Binding]] = {}
        for name, places in bindings.items():
            bound = {place.element for place in places}
            if len(places) < 2 and not self.elements[places[0].element].multiple:
                continue
            shared[name] = places
            fields: dict[str, set[str]] = {}
            for place in places:
                for channel in self.elements[place.element].channels:
                    fields.setdefault(channel, set()).add(place.field)
            if bound == set(range(len(self.elements))) and all(len(found) == 1 for found in fields.values()):
                keys[name] = {channel: next(iter(found)) for channel, found in fields.items()}
        return keys, shared

    def _variables(self, shared: Mapping[str, list[_Binding]], keys: Mapping[str, Any]) -> tuple[model.Variable, ...]:
        return tuple(
            model.Variable(name, places[0].type, tuple(_each_once(places)), name in keys)
            for name, places in shared.items()
        )

    def _channels(self, keys: Mapping[str, Mapping[str, str]]) -> tuple[tuple[model.Channel, ...], EventType | None]:
        """What each channel's events are judged by, key, time and among, and the type of the keys. A part of the key
        is an expression over every channel's events: it has to mean something, and the same type, in all of them."""
        names = sorted({channel for element in self.elements for channel in element.channels})
        parts: dict[str, list[tuple[str, Expr]]] = {name: [] for name in names}
        labels = self._key_labels(list(keys))
        if len(labels) > MAX_PARTS:
            place = self.written.partition[-1].span if self.written.partition else Span(0, 0)
            expected = f"at most {MAX_PARTS}"
            self.expressions.problem(
                place, "too many parts of a partition's key", expected=expected, found=str(len(labels))
            )
            return (), None
        for at, condition in enumerate(self.written.partition):
            seen: dict[Record, Expr | None] = {}
            for name in names:
                record = self.types[name].record
                if record not in seen:
                    seen[record] = self.expressions.value(condition, record) if None not in seen.values() else None
                value = seen[record]
                if value is not None:
                    parts[name].append((labels[at], value))
            self._check_alike(condition, [value for value in seen.values() if value is not None])
        for label, variable in zip(labels[len(self.written.partition) :], keys, strict=True):
            for name in names:
                field = self.types[name].record.by_name[keys[variable][name]]
                parts[name].append((label, Load(Path((field.name,)), field.type, promote(field.type))))
        among = self._among(names)
        channels, key = [], None
        for name in names:
            record = self.types[name].record
            made = None
            if labels and len(parts[name]) == len(labels):
                made = self.expressions.key(parts[name], record)
                key = made.output if made is not None else key
            time = self._time(record)
            filter, all = among.get(name, (None, True))
            channels.append(model.Channel(name, self.types[name], made, time, filter, all))
        return tuple(channels), key

    def _time(self, record: Record) -> Interest | None:
        """What says the time of an event; that of its publication if nothing does, or of a match its own."""
        if self.written.time is not None:
            return self.expressions.time(self.written.time, record)
        if is_result(record):
            return self.expressions.time(written.Condition(f"{MATCH}.time"), record)
        return None

    def _check_alike(self, condition: written.Condition, values: list[Expr]) -> None:
        types = {value.type for value in values}
        if len(types) > 1:
            found = " and ".join(sorted(map(str, types)))
            self.expressions.problem(
                condition.span,
                "the channels have this part of the key in different types",
                found=found,
                hint="cast it to one: cast(x as i64)",
            )

    def _key_labels(self, variables: list[str]) -> list[str]:
        labels: list[str] = []
        for at, condition in enumerate(self.written.partition):
            text = condition.definition if isinstance(condition.definition, str) else ""
            labels.append(text.strip() if text.strip().isidentifier() else f"key{at + 1}")
        labels += variables
        return [label if labels.index(label) == at else f"{label}_{at + 1}" for at, label in enumerate(labels)]

    def _among(self, names: list[str]) -> dict[str, tuple[Any, bool]]:
        """By channel: the interest that makes rows, and whether all events are. A channel whose type lacks a field that
        another has, passes nothing."""
        condition = self.written.among
        if condition is None:
            return {}
        found: dict[str, tuple[Any, bool]] = {}
        kept, first = list(self.expressions.problems), None
        for name in names:
            before = len(self.expressions.problems)
            program = self.expressions.read(condition, self.types[name].record, Builder)
            problems = self.expressions.problems[before:]
            if program is not None:
                found[name] = (self.expressions.interest(program), False)
                continue
            first = first or problems
            if all(problem.about is not None for problem in problems):
                found[name] = (None, False)
                del self.expressions.problems[before:]
        if first and not any(interest is not None for interest, _ in found.values()):
            self.expressions.problems = kept + first
        return found

    # ── conditions ──

    def _conditions(
        self, bindings: Mapping[str, list[_Binding]], shared: Mapping[str, list[_Binding]]
    ) -> list[model.Condition]:
        """Take each element's condition apart at `and`: what reads its own event alone becomes the element's
        condition, which sources can judge; the rest is asked when the last element it names is taken."""
        found: list[model.Condition] = []
        records = self._records()
        for at, atom in enumerate(self.atoms):
            if at in self.grown.unknown:
                continue
            element = self.elements[at]
            scope = self._scope(at, bindings)
            conjuncts = self._template(at, atom, scope)
            conjuncts += self._bound(at, shared)
            if atom.condition is not None:
                conjuncts += self.expressions.conjuncts(atom.condition, scope)
            text = self._slice(atom.span)
            alone = [conjunct for conjunct in conjuncts if is_alone(conjunct, element.name)]
            interest = self.expressions.alone(alone, element.type.record, text)
            self.elements[at] = replace(element, condition=interest)
            for conjunct in conjuncts:
                if is_alone(conjunct, element.name):
                    continue
                made = self.expressions.between(conjunct, element.name, records, text)
                if made is not None:
                    span = self._span(atom, conjunct)
                    found.append(model.Condition(self._judged(at, conjunct), *made, span=span))
        return found

    def _span(self, atom: written.Atom, conjunct: Expr) -> Span:
        condition = atom.condition
        if condition is None or not isinstance(condition.definition, str):
            return atom.span
        start = condition.span.start
        return Span(start + conjunct.span.start, start + conjunct.span.end)

    def _slice(self, span: Span) -> str:
        return self.written.text[span.start : span.end]

    def _judged(self, at: int, conjunct: Expr) -> tuple[int, ...]:
        """The elements at which a condition is asked: its own, and those whose order to it is open."""
        names = {view_of(member).name for member in paths_of([conjunct])}
        places = {place for name in names for place in self._places(name)}
        return tuple(sorted({at} | (places & self.order.together.get(at, set()))))

    def _places(self, name: str) -> tuple[int, ...]:
        subset = next((subset for subset in self.subsets if subset.name == name), None)
        if subset is not None:
            return subset.elements
        return tuple(at for at, element in enumerate(self.elements) if element.name == name)

    def _records(self) -> dict[str, Record]:
        found = {element.name: element.type.record for element in self.elements}
        return found | {subset.name: self.elements[subset.elements[0]].type.record for subset in self.subsets}

    def _scope(self, at: int, bindings: Mapping[str, list[_Binding]]) -> Scope:
        names = {element.name: self._named(at, (place,)) for place, element in enumerate(self.elements)}
        names |= {subset.name: self._named(at, subset.elements, several=True) for subset in self.subsets}
        variables = {
            name: tuple((self.elements[place.element].name, place.field) for place in places)
            for name, places in bindings.items()
        }
        return Scope(names, self.elements[at].name, variables)

    def _named(self, at: int | None, places: tuple[int, ...], *, several: bool = False) -> Named:
        element = self.elements[places[0]]
        multiple = several or element.multiple
        loose = bool(self.loose & set(places))
        unknown = bool(self.grown.unknown & set(places))
        return Named(element.type.record, multiple, loose, self._refused(at, places), unknown)

    def _refused(self, at: int | None, places: tuple[int, ...]) -> tuple[str, str] | None:
        """Why the condition of an element may not name these."""
        name = self.elements[places[0]].name
        if at is not None and places == (at,):
            return None
        if any(self.elements[place].negative for place in places):
            return f"{name!r} stands for what does not come, and has no event", "name another element"
        if at is None:
            return None
        here = self.elements[at].name
        before = self.order.before.get(at, set())
        later = [place for place in places if place not in before and place != at]
        if len(later) == len(places):
            return (
                f"{name!r} is not taken yet where {here!r} is",
                f"put the condition to {name!r}, or to what follows both",
            )
        if any(place in self.order.doubtful.get(at, set()) for place in places):
            return f"{name!r} may come later than {here!r}, or never", "put the condition to an element after both"
        return None

    def _template(self, at: int, atom: written.Atom, scope: Scope) -> list[Expr]:
        """What a template asks: fields that have a value of their own there."""
        builder: Any = type(
            "Template",
            (ScopedBuilder,),
            {"scope": scope, "settled": self.expressions.settled, "doubts": self.expressions.doubts},
        )
        b = builder(Record("Elements", ()), params=self.expressions.decls, text=self.written.text, notation="predicate")
        found = []
        for name, argument in self._arguments(at, atom):
            value = argument.value
            if not isinstance(value, written.Value):
                continue
            subject = b.own_field(name, argument.span)
            if value.parameter:
                test = b.compare("eq", subject, b.param(value.value, value.span), value.span)
            elif value.value is None:
                test = b.is_missing(subject, value.span)
            else:
                test = b.compare("eq", subject, b.const(value.value, value.span), value.span)
            if not is_bad(test):
                found.append(test)
        self.expressions.problems += b.problems
        return found

    def _bound(self, at: int, shared: Mapping[str, list[_Binding]]) -> list[Expr]:
        """A variable that means equality is never missing or NaN: such a value equals none."""
        found: list[Expr] = []
        element = self.elements[at]
        for places in shared.values():
            for place in places:
                if place.element != at:
                    continue
                field = element.type.record.by_name[place.field]
                load = Load(Path((element.name, field.name)), field.type, place.type, place.span)
                if places[at_first := _first(places, at)] is not place:  # twice in one event
                    other = element.type.record.by_name[places[at_first].field]
                    same = Load(Path((element.name, other.name)), other.type, place.type, place.span)
                    found.append(Compare("eq", same, load, place.span))
                elif place.type == F64:
                    found.append(Compare("eq", load, load, place.span))
                elif field.optional:
                    found.append(Unary("not", IsMissing(load, place.span), BOOL, place.span))
        return found

    # ── the result ──

    def _measures(self, bindings: Mapping[str, list[_Binding]]) -> tuple[EventType, model.Measures | None]:
        """The type of the results, and the interest that makes them of a match; without measures a result has a field
        for each element."""
        given = self.written.measures
        if given is None:
            for element in self.elements:
                if element.name == MATCH and not element.negative:
                    self._taken_name(element.span, "element")
            return event_type(with_match(derived(self.elements, self.grown.root, self.result))), None
        each = dict[str, written.Measure]()  # a name that is there twice does not hide what is wrong with the others
        for measure in given:
            if measure.name in each:
                self.expressions.problem(
                    measure.span, f"the measure {measure.name!r} is there twice", hint="rename one"
                )
            elif not measure.name.isidentifier():
                self.expressions.problem(
                    measure.span,
                    "a measure has no such name",
                    expected="a name of letters, digits and _",
                    found=measure.name[:40],
                )
            elif measure.name == MATCH:
                self._taken_name(measure.span, "measure")
            each.setdefault(measure.name, measure)
        if len(given) > MAX_MEASURES:
            self.expressions.problem(given[MAX_MEASURES].span, "too many measures", expected=f"at most {MAX_MEASURES}")
        if not given:
            self.expressions.problem(
                Span(0, 0), "no measures", hint="name one, or leave measures out to have all elements"
            )
        fallback = event_type(Record(self.result, (Field("none", BOOL, optional=True),)))
        scope = replace(self._scope(0, bindings), me=None, bounded=False)
        united = {subset.name for subset in self.subsets}
        scope.names = {name: self._named(None, self._places(name), several=name in united) for name in scope.names}
        if not given or len(given) > MAX_MEASURES:
            return fallback, None
        made = self.expressions.measures(tuple(each.values()), scope, self._records(), self.result)
        if made is None or made[0].output is None or len(each) < len(given):
            return fallback, None
        return event_type(with_match(made[0].output.record)), model.Measures(*made)

    def _taken_name(self, span: Span, what: str) -> None:
        self.expressions.problem(
            span,
            f"the result has a field {MATCH!r} of its own, which says who the match is, when, and how certain",
            expected=f"another name for the {what}",
            hint=f"rename it, or name measures that are not called {MATCH!r}",
        )

    def _after(self) -> model.After:
        after = self.written.after
        if after.rule not in ("first", "last"):
            return model.After(after.rule)
        places = self._places(after.element or "")
        positive = tuple(place for place in places if not self.elements[place].negative)
        if not positive:
            known = [element.name for element in self.elements if not element.negative]
            self.expressions.problem(
                after.span,
                f"no element {after.element!r} to go on from",
                expected="an element that is taken",
                hint=self._near(after.element or "", known),
            )
        return model.After(after.rule, positive)

    def _check_durations(self) -> None:
        for what, value in (("lateness", self.written.lateness), ("patience", self.written.patience)):
            if value is not None and not 0 <= value <= MAX_TIME:
                self.expressions.problem(
                    Span(0, 0), f"{what} of {value:,} microseconds", expected="none, or up to 9,998 years"
                )


def _first(places: list[_Binding], element: int) -> int:
    return next(at for at, place in enumerate(places) if place.element == element)


def _each_once(places: list[_Binding]) -> Iterator[tuple[int, str]]:
    for at, place in enumerate(places):
        if _first(places, place.element) == at:
            yield place.element, place.field


def _is_scalar(type: Type) -> bool:
    return not isinstance(type, List | Record) and not hasattr(type, "shape")


__all__ = ["MAX_PARTS", "RESULT", "check", "check_parts", "in_order"]
