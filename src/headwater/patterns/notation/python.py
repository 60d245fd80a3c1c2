"""Patterns in Python: immutable expressions, put together by functions and methods.

    a = atom("hall.door", where="action = 'in'", name="a")
    b = atom("hall.door", where="action = 'in' and who != a.who", name="b")
    tailgating = seq(a, b).within(seconds=2).partition_by("door")

    P = var("P")
    seq(atom("seen", P, 42), atom("seen", P, ANY))        templates; fields by name: atom("seen", who=P)
    seq(atom("door"), without(atom("pass"))).within("10 seconds")
    seq(a, b.one_or_more(), c, selection="next"), either(a, b), both(a, b), a.times(2, 5), a.optional()

Parts are expressions without options (`within` and the like): these belong to the whole. `written` is what is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from headwater.durations import NUMBER, UNITS, micros
from headwater.patterns import written
from headwater.patterns.written import (
    SELECTIONS,
    After,
    Argument,
    Condition,
    Measure,
    Node,
    Selection,
    Value,
    Variable,
    Wildcard,
    Window,
)

NOTATION = "python"
RULES = ("no skip", "next", "past last", "first", "last")
ANY = Wildcard()

Definition = str | Callable[..., Any]


@dataclass(frozen=True)
class Parameter:
    """A value of a template that the caller gives with `params=`."""

    name: str


def var(name: str) -> Variable:
    """A variable of templates: where it stands twice, the values are equal."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"var: expected a name of letters, digits and _, found {name!r}")
    return Variable(name)


def param(name: str) -> Parameter:
    """A value that is given, or changed, when the pattern runs; in text, `:name`."""
    return Parameter(name)


@dataclass(frozen=True)
class Expression:
    """A pattern, or a part of one. Every method returns another; this one stays as it is."""

    node: Node
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def written(self) -> written.Pattern:
        return written.Pattern(self.node, **self.options, notation=NOTATION)

    # ── parts ──

    def times(
        self, least: int, most: int | str | None = "as least", *, selection: Selection = "next", greedy: bool = True
    ) -> Expression:
        """So many rounds: `times(3)`, `times(2, 5)`, `times(2, None)` for two or more."""
        upper: Any = least if most == "as least" else most
        for count in (least, upper):
            if count is not None and (not isinstance(count, int) or isinstance(count, bool)):
                raise ValueError(f"times: expected whole numbers, found {count!r}")
        return Expression(written.Repeat(_part(self, "times"), least, upper, _selection(selection), greedy))

    def one_or_more(self, *, selection: Selection = "next", greedy: bool = True) -> Expression:
        return self.times(1, None, selection=selection, greedy=greedy)

    def zero_or_more(self, *, selection: Selection = "next", greedy: bool = True) -> Expression:
        return self.times(0, None, selection=selection, greedy=greedy)

    def optional(self, *, greedy: bool = True) -> Expression:
        return self.times(0, 1, greedy=greedy)

    def without(self, absent: Expression) -> Expression:
        """Nothing of this kind between the elements."""
        return Expression(written.Without(_part(absent, "without"), _part(self, "without")))

    def named(self, name: str) -> Expression:
        """The same atom with a name that conditions and results call it by."""
        if not isinstance(self.node, written.Atom):
            raise ValueError("named: expected an atom, found an expression of several; name its atoms")
        return replace(self, node=replace(self.node, name=name))

    # ── the whole ──

    def _with(self, **options: Any) -> Expression:
        return replace(self, options={**self.options, **options})

    def within(
        self,
        length: float | str | timedelta | Parameter | None = None,
        *,
        seconds: float | None = None,
        events: int | None = None,
    ) -> Expression:
        """At most so long from the first event to the last: seconds, a timedelta, a text such as `"10 seconds"`, or a
        number of events."""
        if sum(each is not None for each in (length, seconds, events)) != 1:
            raise ValueError("within: expected a time or a number of events, found none or both")
        if events is not None:
            return self._with(window=Window(rows=events))
        if isinstance(length, Parameter):
            return self._with(window=Window(parameter=length.name))
        said = seconds if length is None else length
        assert said is not None
        return self._with(window=Window(microseconds=duration(said)))

    def whenever(self) -> Expression:
        """Anew at each occurrence of a first element."""
        return self._with(begin="each")

    def once(self) -> Expression:
        """Once in a partition."""
        return self._with(begin="first")

    def partition_by(self, *expressions: Definition) -> Expression:
        return self._with(partition=tuple(map(Condition, expressions)))

    def among(self, condition: Definition) -> Expression:
        return self._with(among=Condition(condition))

    def after(self, rule: str, element: str | None = None) -> Expression:
        """Where the next match may begin: `"past last"`, `"next"`, `"no skip"`, or `"first"` or `"last"` and an
        element."""
        if rule not in RULES or (element is None) == (rule in ("first", "last")):
            raise ValueError(f"after: expected {', '.join(RULES[:3])}, or first or last and an element, found {rule!r}")
        return self._with(after=After(rule, element))  # type: ignore[arg-type]

    def no_reuse(self) -> Expression:
        """An event of a match is in no later one."""
        return self._with(reuse=False)

    def time(self, expression: Definition) -> Expression:
        return self._with(time=Condition(expression))

    def lateness(self, length: float | str | timedelta) -> Expression:
        return self._with(lateness=duration(length))

    def patience(self, length: float | str | timedelta) -> Expression:
        return self._with(patience=duration(length))

    def measures(self, **values: Definition) -> Expression:
        return self._with(measures=tuple(Measure(name, Condition(value)) for name, value in values.items()))

    def subset(self, name: str, *elements: str) -> Expression:
        """A name for the events of several elements together."""
        return self._with(subsets={**self.options.get("subsets", {}), name: elements})

    def aliases(self, **channels: str) -> Expression:
        """Other names for channels."""
        return self._with(aliases={**self.options.get("aliases", {}), **channels})


# ── what makes expressions ──


def atom(
    channel: str,
    *template: Any,
    name: str | None = None,
    where: Definition | None = None,
    fields: Mapping[str, Any] | None = None,
    **more: Any,
) -> Expression:
    """One event of a channel, or of a pattern of names. `template` has a value, `var(…)` or `ANY` for each field in its
    order; by name they are keywords, or in `fields` where a keyword is taken. `where` is a condition."""
    if not isinstance(channel, str) or not channel:
        raise ValueError(f"atom: expected the name of a channel, found {channel!r}")
    named = {**(fields or {}), **more}
    arguments = tuple(Argument(_value(value)) for value in template)
    arguments += tuple(Argument(_value(value), field) for field, value in named.items())
    condition = None if where is None else Condition(where)
    return Expression(written.Atom(channel, name, arguments or None, condition))


def seq(*parts: Expression, selection: Selection = "any") -> Expression:
    """One after the other; `selection` is that of all steps: any that fits, the next that fits, strictly adjacent."""
    nodes = _parts(parts, "seq")
    if len(nodes) == 1:
        return Expression(nodes[0])
    return Expression(written.Sequence(nodes, (_selection(selection),) * (len(nodes) - 1)))


def either(*parts: Expression) -> Expression:
    """One of these: `a | b`, for more than two or a list of them."""
    nodes = _parts(parts, "either")
    return Expression(nodes[0] if len(nodes) == 1 else written.Either(nodes))


def both(*parts: Expression, selection: Selection = "next") -> Expression:
    """All of them, in any order."""
    nodes = _parts(parts, "both")
    return Expression(nodes[0] if len(nodes) == 1 else written.Both(nodes, _selection(selection)))


def without(absent: Expression) -> Expression:
    """As a part of `seq`: nothing of this kind between its neighbours, or after the last until the window ends."""
    return Expression(written.Without(_part(absent, "without")))


def duration(length: float | str | timedelta) -> int:
    """Microseconds of a number of seconds, a timedelta, or a text such as `"1 hour 30 minutes"`."""
    if isinstance(length, timedelta):
        return length // timedelta(microseconds=1)
    if isinstance(length, str):
        return _said(length)
    if isinstance(length, bool) or not isinstance(length, int | float) or length != length or abs(length) > 1e15:
        raise ValueError(f"expected a number of seconds, a timedelta or a text such as '10 seconds', found {length!r}")
    return round(length * 1_000_000)


def _said(text: str) -> int:
    words = text.split()
    total = 0
    for number, unit in zip(words[::2], words[1::2], strict=False):
        found = micros(number, unit) if NUMBER.fullmatch(number) and unit in UNITS else None
        if found is None or len(words) % 2:
            raise ValueError(f"expected a time such as '10 seconds', found {text[:40]!r}")
        total += found
    if not words or len(words) % 2:
        raise ValueError(f"expected a time such as '10 seconds', found {text[:40]!r}")
    return total


def _value(value: Any) -> Variable | Wildcard | Value:
    if isinstance(value, Variable | Wildcard):
        return value
    return Value(value.name, True) if isinstance(value, Parameter) else Value(value)


def _selection(selection: str) -> Selection:
    found = next((each for each in SELECTIONS if each == selection), None)
    if found is None:
        raise ValueError(f"selection: expected {', '.join(SELECTIONS)}, found {selection!r}")
    return found


def _parts(parts: tuple[Expression, ...], what: str) -> tuple[Node, ...]:
    if not parts:
        raise ValueError(f"{what}: expected at least one part, found none")
    return tuple(_part(part, what) for part in parts)


def _part(part: Any, what: str) -> Node:
    if not isinstance(part, Expression):
        raise ValueError(f"{what}: expected expressions, e.g. atom('seen'), found {part!r:.60}")
    if part.options:
        said = ", ".join(sorted(part.options))
        raise ValueError(f"{what}: a part has options of its own ({said}): say them of the whole")
    return part.node


__all__ = ["ANY", "Expression", "Parameter", "atom", "both", "duration", "either", "param", "seq", "var", "without"]
