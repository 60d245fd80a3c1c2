"""Reads the serial form of a pattern part by part: whatever the checker assures of a pattern is looked at again, since
the bytes may come from an enemy."""

from __future__ import annotations

from typing import Any

from headwater.errors import ParameterError
from headwater.interest import Interest
from headwater.ir import serial
from headwater.ir.nodes import Compare, Expr, IsMissing, Load, Logic, Path, Program, Return, Unary
from headwater.ir.notes import MAX_DEPTH, MAX_TEXT
from headwater.patterns import model, structure
from headwater.patterns.checker.scope import AGGREGATES, member_field, view_of
from headwater.patterns.checker.window import MAX_ROWS, MAX_TIME, seconds_as_micros
from headwater.patterns.model import KINDS
from headwater.patterns.result import MATCH, derived, with_match
from headwater.patterns.serial_forms import bool_of, int_of, list_of, str_of, wrong
from headwater.patterns.written import SELECTIONS
from headwater.types import EventType, event_type
from headwater.types.model import BOOL, F64, TIMESTAMP, Array, Field, List, Record, promote

MAX_CHANNELS = 1_000
MAX_CONDITIONS = 1_000
RULES = ("no skip", "next", "past last", "first", "last")
TIME = Record("Time", (Field("time", TIMESTAMP),))


class Reader:
    """One pattern, for the parameters that are given."""

    def __init__(self, params: dict[str, Any], limits: model.Limits) -> None:
        self.params, self.limits = params, limits
        self.used: set[str] = set()

    def pattern(self, form: list[Any]) -> model.Pattern:
        """Read the parts in the order in which later ones refer to earlier ones, each checked as it is read: the bytes
        may come from anywhere."""
        (
            _,
            result,
            types,
            channels,
            elements,
            tree,
            absent,
            conditions,
            variables,
            subsets,
            options,
            measures,
            *texts,
        ) = form
        self.types = [self.type(entry) for entry in list_of(types, "types", most=MAX_CHANNELS)]
        self.channels = tuple(self.channel(entry) for entry in list_of(channels, "channels", most=MAX_CHANNELS))
        self.by_name = {channel.name: channel for channel in self.channels}
        if len(self.by_name) < len(self.channels):
            wrong("channels of different names")
        key = self.key()
        self.elements: list[model.Element] = []
        for entry in list_of(elements, "elements", most=model.MAX_ELEMENTS):
            self.elements.append(self.element(entry))
        root = self.node(tree, 0)
        if structure.places(root) > model.MAX_PLACES:
            wrong(f"at most {model.MAX_PLACES:,} places")
        gone = tuple(
            self.place(at, negative=True) for at in list_of(absent, "absent elements", most=model.MAX_ELEMENTS)
        )
        self.elements = [self.counted(at, element, root) for at, element in enumerate(self.elements)]
        self.subsets = tuple(self.subset(entry) for entry in list_of(subsets, "subsets", most=model.MAX_ELEMENTS))
        names = [element.name for element in self.elements] + [subset.name for subset in self.subsets]
        if len(set(names)) < len(names):
            wrong("elements and subsets of different names")
        self.order, self.loose = structure.order(root, gone), structure.repeated_by_any(root)
        asked = tuple(self.condition(entry) for entry in list_of(conditions, "conditions", most=MAX_CONDITIONS))
        bound = tuple(self.variable(entry) for entry in list_of(variables, "variables", most=model.MAX_ELEMENTS))
        window, begin, rule, after, reuse, lateness, patience = list_of(options, "options", 7)
        if begin not in ("each", "first") or rule not in RULES:
            wrong("a rule of beginning and of going on")
        places = tuple(self.place(at, negative=False) for at in list_of(after, "elements", most=model.MAX_ELEMENTS))
        if bool(places) != (rule in ("first", "last")):
            wrong("elements to go on from, or none")
        name = str_of(result, "a name of a type")
        made = None if measures is None else self.measures(measures, name)
        measured = None if made is None else made.interest.output
        fields = derived(self.elements, root, name) if measured is None else measured.record
        if MATCH in fields.by_name:
            wrong(f"a result without a field {MATCH!r} of its own")
        output = event_type(with_match(fields))
        notation, text = (self.text(each) for each in texts)
        length = self.window(window)
        unknown = sorted(set(self.params) - self.used)
        if unknown:
            known = ", ".join(sorted(self.used)) or "none"
            raise ParameterError(f"no parameter {unknown[0]!r} in this pattern; it reads {known}")
        return model.Pattern(
            channels=self.channels,
            elements=tuple(self.elements),
            root=root,
            absent=gone,
            conditions=asked,
            variables=bound,
            subsets=self.subsets,
            window=length,
            begin=begin,
            after=model.After(rule, places),
            reuse=bool_of(reuse),
            lateness=int_of(lateness, "lateness", 0, MAX_TIME),
            patience=None if patience is None else int_of(patience, "patience", 0, MAX_TIME),
            key=key,
            output=output,
            measures=made,
            limits=self.limits,
            params=self.params,
            text=text,
            notation=notation,
        )

    # ── parts of parts ──

    def text(self, x: Any) -> str:
        if x.__class__ is not str or len(x) > MAX_TEXT:
            wrong(f"text of at most {MAX_TEXT} characters")
        return str(x)

    def program(self, x: Any) -> Program:
        if x.__class__ is not bytes:
            wrong("an interest")
        return serial.loads(x)

    def interest(self, x: Any) -> Interest:
        program = self.program(x)
        if program.stateful:
            wrong("an interest without state")
        names = [param.name for param in program.params]
        self.used |= set(names)
        return Interest.from_program(program, {name: self.params[name] for name in names if name in self.params})

    def filter(self, x: Any, record: Record) -> Interest | None:
        """A condition on events of a type."""
        if x is None:
            return None
        found = self.interest(x)
        if found.output is not None or found.type.record != record:
            wrong("a condition on events of the element's type")
        return found

    def type(self, x: Any) -> EventType:
        return event_type(self.program(x).input)

    def known(self, x: Any) -> EventType:
        return self.types[int_of(x, "a type", 0, len(self.types) - 1)]

    def channel(self, entry: Any) -> model.Channel:
        name, of, key, time, among, all = list_of(entry, "a channel", 6)
        type = self.known(of)
        made = None if key is None else self.interest(key)
        if made is not None and (made.output is None or made.type.record != type.record):
            wrong("a key of events of the channel")
        clock = None if time is None else self.interest(time)
        if clock is not None and (
            clock.output is None or clock.output.record != TIME or clock.type.record != type.record
        ):
            wrong("a time of events of the channel")
        return model.Channel(
            str_of(name, "a channel's name"), type, made, clock, self.filter(among, type.record), bool_of(all)
        )

    def key(self) -> EventType | None:
        """Of all channels: the same record of single values, or none at all."""
        outputs = [channel.key.output if channel.key is not None else None for channel in self.channels]
        if not outputs or outputs[0] is None:
            if any(output is not None for output in outputs):
                wrong("a key for all channels, or for none")
            return None
        first = outputs[0].record
        if any(output is None or output.record != first for output in outputs):
            wrong("keys of one type")
        if any(isinstance(f.type, Array | List | Record) or f.optional for f in first.fields):
            wrong("a key of single values")
        return outputs[0]

    def element(self, entry: Any) -> model.Element:
        name, channel, channels, of, condition, negative = list_of(entry, "an element", 6)
        type = self.known(of)
        names = tuple(str_of(each, "a channel's name") for each in list_of(channels, "channels", most=MAX_CHANNELS))
        if not names or any(
            each not in self.by_name or self.by_name[each].type.record != type.record for each in names
        ):
            wrong("an element of channels of its type")
        if not str_of(name, "a name").isidentifier():
            wrong("a name of letters, digits and _")
        tested = self.filter(condition, type.record)
        return model.Element(name, str_of(channel, "a channel"), names, type, tested, bool_of(negative))

    def counted(self, at: int, element: model.Element, root: model.Node) -> model.Element:
        multiple = not element.negative and structure.times(root, at, least=False) > 1
        return model.Element(
            element.name, element.channel, element.channels, element.type, element.condition, element.negative, multiple
        )

    def place(self, x: Any, *, negative: bool) -> int:
        at = int_of(x, "an element", 0, len(self.elements) - 1)
        if self.elements[at].negative != negative:
            wrong("an element that is taken where one is, and one that is not where none is")
        return at

    def subset(self, entry: Any) -> model.Subset:
        name, members = list_of(entry, "a subset", 2)
        places = tuple(self.place(at, negative=False) for at in list_of(members, "elements", most=model.MAX_ELEMENTS))
        if not places or len({self.elements[at].type.record for at in places}) > 1:
            wrong("a subset of elements of one type")
        return model.Subset(str_of(name, "a name"), places)

    # ── the tree ──

    def node(self, entry: Any, depth: int) -> model.Node:
        """A part of the tree and what it contains; a kind is a number, the meaning of the rest follows from it."""
        if depth > MAX_DEPTH:
            wrong("a tree that nests less deeply")
        parts = list_of(entry, "a part of the tree")
        match int_of(parts[0] if parts else None, "a kind of part", 0, 4):
            case 0:
                _, at = list_of(parts, "an element", 2)
                return model.Leaf(self.place(at, negative=False))
            case 1:
                _, inner, steps = list_of(parts, "a sequence", 3)
                nodes = self.nodes(inner, depth)
                made = tuple(self.step(each) for each in list_of(steps, "steps", len(nodes) - 1))
                return model.Sequence(nodes, made)
            case 2:
                return model.Either(self.nodes(list_of(parts, "alternatives", 2)[1], depth))
            case 3:
                _, inner, step = list_of(parts, "parts in any order", 3)
                made_step, nodes = self.step(step), self.nodes(inner, depth)
                if any(set(each.forbidden) - set(made_step.forbidden) for part in nodes for each in model.steps(part)):
                    wrong("nothing forbidden within parts in any order alone")
                return model.Both(nodes, made_step)
            case _:
                _, part, least, most, step, greedy = list_of(parts, "a repetition", 6)
                fewest = int_of(least, "rounds", 0, model.MAX_ROUNDS)
                greatest = None if most is None else int_of(most, "rounds", max(1, fewest), model.MAX_ROUNDS)
                return model.Repeat(self.node(part, depth + 1), fewest, greatest, self.step(step), bool_of(greedy))

    def nodes(self, entry: Any, depth: int) -> tuple[model.Node, ...]:
        found = tuple(self.node(part, depth + 1) for part in list_of(entry, "parts", most=model.MAX_PLACES))
        if len(found) < 2:
            wrong("two parts or more")
        return found

    def step(self, entry: Any) -> model.Step:
        selection, forbidden = list_of(entry, "a step", 2)
        if selection not in SELECTIONS:
            wrong(f"a selection: {', '.join(SELECTIONS)}")
        places = (self.place(at, negative=True) for at in list_of(forbidden, "elements", most=model.MAX_ELEMENTS))
        return model.Step(selection, tuple(sorted(set(places))))

    # ── conditions ──

    def condition(self, entry: Any) -> model.Condition:
        elements, form = list_of(entry, "a condition", 2)
        places = tuple(
            int_of(at, "an element", 0, len(self.elements) - 1)
            for at in list_of(elements, "elements", most=model.MAX_ELEMENTS)
        )
        interest = self.interest(form)
        views = self.views(interest.type.record)
        if not places or list(places) != sorted(set(places)) or interest.output is not None:
            wrong("a condition of elements in their order")
        for view in views:
            self.check_view(view, places)
        return model.Condition(places, interest, views)

    def check_view(self, view: model.View, places: tuple[int, ...]) -> None:
        """Whether what a condition reads is there when it is asked, and has a bound."""
        named = self.named(view.name)
        if view.kind in AGGREGATES and self.loose & set(named):
            wrong("a condition that can be bounded")
        for at in places:
            if self.elements[at].negative and len(places) > 1:
                wrong("a condition of one negative element by itself")
            readable = self.order.before.get(at, set()) | set(places)
            if not readable & set(named):
                wrong("a condition on elements that are taken by then")
        if any(self.elements[at].negative and at not in places for at in named):
            wrong("a condition on elements that are taken")

    def named(self, name: str) -> tuple[int, ...]:
        subset = next((subset for subset in self.subsets if subset.name == name), None)
        found = subset.elements if subset else tuple(at for at, e in enumerate(self.elements) if e.name == name)
        if not found:
            wrong("a condition on elements that there are")
        return found

    def views(self, record: Record) -> tuple[model.View, ...]:
        """What the members of a condition's record mean; each is just as the checker makes it."""
        found = []
        for member in record.fields:
            view = view_of(member.name)
            places = self.named(view.name)
            of = self.elements[places[0]].type.record
            united = any(subset.name == view.name for subset in self.subsets)
            multiple = united or self.elements[places[0]].multiple
            if view.kind == "prev" and not multiple:
                wrong("the previous event of what is repeated")
            inner = member.type.by_name if isinstance(member.type, Record) else ()
            if view.kind not in KINDS or any(name not in of.by_name for name in inner if view.kind != "meta"):
                wrong("a record of the elements' fields")
            if member_field(view, inner, of) != member:
                wrong("a record of the elements' fields")
            found.append(view)
        return tuple(found)

    def variable(self, entry: Any) -> model.Variable:
        name, fields, key = list_of(entry, "a variable", 3)
        places: list[tuple[int, str]] = []
        for place in list_of(fields, "places", most=model.MAX_ELEMENTS):
            at, field = list_of(place, "a place", 2)
            at, name_of_field = int_of(at, "an element", 0, len(self.elements) - 1), str_of(field, "a field's name")
            if name_of_field not in self.elements[at].type.record.by_name:
                wrong("a variable in a field")
            places.append((at, name_of_field))
        if len({at for at, _ in places}) < len(places) or not places:
            wrong("a variable in one field of each element")
        types = {promote(self.elements[at].type.record.by_name[field].type) for at, field in places}
        if len(types) > 1 or isinstance(next(iter(types)), Array | List | Record):
            wrong("a variable of one type, with single values")
        for at, field in places:
            self.check_bound(self.elements[at], field)
        return model.Variable(str_of(name, "a name"), types.pop(), tuple(places), bool_of(key))

    def check_bound(self, element: model.Element, name: str) -> None:
        """A variable is never missing or NaN: the element's condition says so."""
        field = element.type.record.by_name[name]
        load = Load(Path((name,)), field.type, promote(field.type))
        test: Expr | None = None
        if promote(field.type) == F64:
            test = Compare("eq", load, load)
        elif field.optional:
            test = Unary("not", IsMissing(load), BOOL)
        if test is not None and test not in _conjuncts(element.condition):
            wrong("a variable that always has a value")

    def measures(self, form: Any, name: str) -> model.Measures:
        interest = self.interest(form)
        if interest.output is None or interest.output.name != name:
            wrong("measures that make a result")
        views = self.views(interest.type.record)
        if any(self.elements[at].negative for view in views for at in self.named(view.name)):
            wrong("measures of elements that are taken")
        return model.Measures(interest, views)

    def window(self, entry: Any) -> model.Window | None:
        if entry is None:
            return None
        micros, rows, parameter = list_of(entry, "a window", 3)
        if parameter is not None:
            name = str_of(parameter, "a parameter")
            self.used.add(name)
            micros = seconds_as_micros(self.params.get(name))
            if micros is None:
                found = repr(self.params[name])[:40] if name in self.params else "none"
                raise ParameterError(f"expected a number of seconds for parameter {name!r}, found {found}")
        if (micros is None) == (rows is None):
            wrong("a window of a time or of a number of events")
        return model.Window(
            None if micros is None else int_of(micros, "a window", 0, MAX_TIME),
            None if rows is None else int_of(rows, "a window", 1, MAX_ROWS),
            parameter,
        )


def _conjuncts(interest: Interest | None) -> tuple[Expr, ...]:
    only = interest.program.body[0] if interest is not None and len(interest.program.body) == 1 else None
    if not isinstance(only, Return):
        return ()
    return only.value.args if isinstance(only.value, Logic) and only.value.op == "and" else (only.value,)
