"""From a pattern as it was written to one that can run: names, types, order and bounds, all problems at once.

channels    every atom's channel is one of the catalogue's, or a pattern that stands for some of them
tree        elements are named, `without` becomes what steps forbid (`tree.py`)
conditions  taken apart into what is asked of one event and what is asked of several (`scope.py`, `expressions.py`)
keys        partitions, also those that variables imply; time; what counts as a row
whole       whether it can match at all, what it may hold, and whether that has a bound (`verify.py`)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from headwater.errors import ParameterError, PatternError, Problem
from headwater.interest import as_event_type
from headwater.ir.nodes import NOWHERE, Expr, ParamDecl, Program, Span
from headwater.ir.notes import is_bad
from headwater.ir.params import declare
from headwater.ir.uses import by_use, is_flexible
from headwater.patterns import model, structure, written
from headwater.patterns.checker.channels import Channels
from headwater.patterns.checker.expressions import Expressions, is_alone
from headwater.patterns.checker.scope import Named, Scope, ScopedBuilder, paths_of, view_of
from headwater.patterns.checker.tree import Grown, grow
from headwater.patterns.checker.variables import Variables
from headwater.patterns.checker.verify import remarks, verify, windows
from headwater.patterns.checker.window import MAX_TIME, as_window
from headwater.patterns.result import MATCH, derived, with_match
from headwater.types import EventType, event_type
from headwater.types.model import BOOL, Field, Record

RESULT = "Match"  # the name of a result's type, unless the caller has another
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
        self.variables = Variables(grown, self.expressions)
        conditions = self._conditions()
        if grown.unknown or not whole:
            return None
        channels, key = Channels(self.written, self.types, self.expressions, self.elements).checked(self.variables.keys)
        window = as_window(self.written.window, self.expressions)
        begin = self.written.begin or self._default_begin(window)
        output, measures = self._measures()
        after = self._after()
        self._check_durations()
        found = model.Pattern(
            channels=channels,
            elements=tuple(self.elements),
            root=grown.root,
            absent=grown.absent,
            conditions=tuple(conditions),
            variables=self.variables.checked,
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
        return replace(found, warnings=(*self.expressions.warnings, *remarks(found, self.written.places)))

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

    # ── conditions ──

    def _conditions(self) -> list[model.Condition]:
        """Take each element's condition apart at `and`: what reads its own event alone becomes the element's
        condition, which sources can judge; the rest is asked when the last element it names is taken."""
        found: list[model.Condition] = []
        records = self._records()
        for at, atom in enumerate(self.atoms):
            if at in self.grown.unknown:
                continue
            element = self.elements[at]
            scope = self._scope(at)
            conjuncts = self._template(at, atom, scope)
            conjuncts += self.variables.bound(at)
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

    def _scope(self, at: int) -> Scope:
        names = {element.name: self._named(at, (place,)) for place, element in enumerate(self.elements)}
        names |= {subset.name: self._named(at, subset.elements, several=True) for subset in self.subsets}
        variables = {
            name: tuple((self.elements[place.element].name, place.field) for place in places)
            for name, places in self.variables.bindings.items()
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
        for name, argument in self.variables.arguments(at, atom):
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

    # ── the result ──

    def _measures(self) -> tuple[EventType, model.Measures | None]:
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
        scope = replace(self._scope(0), me=None, bounded=False)
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
                place = self.written.places.get(what, NOWHERE)
                expected = "none, or up to 9,998 years"
                self.expressions.problem(place, f"{what} of {value:,} microseconds", expected=expected)


__all__ = ["RESULT", "check", "check_parts", "in_order"]
