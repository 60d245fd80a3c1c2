"""From the tree as it was written to that of the model: elements get their names, channels and types, and `without`
goes into the steps it is about.

    a; without n; b       the step from a to b forbids n
    (a; b; c) without n   every step within forbids n
    a; without n          n is absent, until the window ends
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property

from headwater.ir.nodes import Span
from headwater.ir.notes import MAX_DEPTH
from headwater.patterns import model, structure, written
from headwater.patterns.checker.channel_names import KNOWN, is_pattern, matching, nearest
from headwater.patterns.checker.expressions import Expressions
from headwater.types import EventType, event_type
from headwater.types.model import BOOL, Field, Record

RESERVED = ("input", "meta")  # what these mean in conditions cannot be an element
NOTHING_KNOWN = event_type(Record("Unknown", (Field("unknown", BOOL, optional=True),)))


@dataclass
class Grown:
    """The tree; `atoms[i]` is what element i was written as, and `unknown` has those whose type is not known."""

    root: model.Node
    elements: list[model.Element]
    atoms: list[written.Atom]
    absent: tuple[int, ...]
    unknown: set[int]


class _TooMuch(Exception):
    """What follows would only take longer."""


def grow(pattern: written.Pattern, types: Mapping[str, EventType], notes: Expressions) -> Grown | None:
    """The tree, or None if there is none; what is wrong is noted."""
    it = _Grower(pattern, types, notes)
    try:
        root = it.node(pattern.root, 0, top=True)
        if root is None:
            return None
        size = structure.places(root)
        if size > model.MAX_PLACES:
            notes.problem(
                Span(0, len(pattern.text)),
                "this pattern is too large",
                expected=f"at most {model.MAX_PLACES:,} places",
                found=f"{size:,}" if size < 10**12 else "far more",
                hint="repeat less often",
            )
            return None
    except _TooMuch:
        return None
    elements = [
        replace(element, multiple=not element.negative and structure.times(root, at, least=False) > 1)
        for at, element in enumerate(it.elements)
    ]
    return Grown(root, elements, it.atoms, tuple(it.absent), it.unknown)


@dataclass
class _Grower:
    pattern: written.Pattern
    types: Mapping[str, EventType]
    notes: Expressions
    elements: list[model.Element] = field(default_factory=list)
    atoms: list[written.Atom] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    unknown: set[int] = field(default_factory=set)
    told: set[str] = field(default_factory=set)  # channels that there are not

    @cached_property
    def given(self) -> set[str]:
        return _names(self.pattern.root) | set(self.pattern.subsets)

    def problem(self, span: Span, message: str, **more: str | None) -> None:
        self.notes.problem(span, message, **more)

    # ── nodes ──

    def node(self, node: written.Node, depth: int, *, top: bool = False) -> model.Node | None:
        """Grow one part; None where it has a problem that leaves nothing to go on with. `top`: a `without` at its end
        is one until the window ends."""
        if depth > MAX_DEPTH:
            self.problem(node.span, f"this nests deeper than {MAX_DEPTH}", hint="write it with fewer parentheses")
            raise _TooMuch
        match node:
            case written.Atom():
                return model.Leaf(self.element(node, negative=False), node.span)
            case written.Sequence():
                return self.sequence(node, depth, top=top)
            case written.Either(parts=parts):
                found = self.parts(parts, depth, node.span)
                return None if found is None else found[0] if len(found) == 1 else model.Either(found, node.span)
            case written.Both(parts=parts, selection=selection):
                return self.both(node, parts, selection, depth)
            case written.Repeat():
                return self.repeat(node, depth)
            case written.Without(of=None):
                hint = "it stands between two elements, after the last, or after parentheses: (a; b) without n"
                self.problem(node.span, "without has no meaning here", expected="an element before it", hint=hint)
                self.negatives(node.part, depth)
                return None
            case written.Without(part=part, of=of):
                assert of is not None
                inner = self.node(of, depth + 1)
                negatives = self.negatives(part, depth)
                if inner is None:
                    return None
                if not any(True for _ in model.steps(inner)):
                    self.problem(
                        node.span,
                        "without has no meaning here",
                        expected="several elements that it is between",
                        found="one",
                        hint="put them in parentheses: (a; b) without n",
                    )
                return forbid(inner, negatives)

    def parts(self, parts: tuple[written.Node, ...], depth: int, span: Span) -> tuple[model.Node, ...] | None:
        if not parts:
            self.problem(span, "this has no parts", expected="at least one")
            return None
        found = [self.node(part, depth + 1) for part in parts]
        good = tuple(part for part in found if part is not None)
        return good if len(good) == len(found) else None

    def both(
        self, node: written.Both, parts: tuple[written.Node, ...], selection: written.Selection, depth: int
    ) -> model.Node | None:
        found = self.parts(parts, depth, node.span)
        if found is None:
            return None
        for part in found:
            if any(step.forbidden for step in model.steps(part)):
                self.problem(
                    part.span,
                    "without inside an and",
                    expected="without around the whole of it",
                    hint="write (a & b) without n",
                )
        return found[0] if len(found) == 1 else model.Both(found, model.Step(selection), node.span)

    def repeat(self, node: written.Repeat, depth: int) -> model.Node | None:
        """A repetition with bounds that make sense; its part is grown first, so that its problems are told as well."""
        part = self.node(node.part, depth + 1)
        least, most = node.least, node.most
        if least < 0 or (most is not None and (most < least or most < 1)):
            found = f"{{{least},{'' if most is None else most}}}"
            self.problem(
                node.span, "this repetition is empty: it can never match", expected="one round or more", found=found
            )
            return None
        if max(least, most or 0) > model.MAX_ROUNDS:
            self.problem(
                node.span,
                "too many rounds",
                expected=f"at most {model.MAX_ROUNDS:,}",
                found=f"{max(least, most or 0):,}",
                hint="leave the upper end open: {2,}",
            )
            return None
        if part is None:
            return None
        return model.Repeat(part, least, most, model.Step(node.selection), node.greedy, node.span)

    def sequence(self, node: written.Sequence, depth: int, *, top: bool) -> model.Node | None:
        """Elements and the steps between them; what may not come between two is part of the step that it stands in,
        and what stands last is absent until the window ends."""
        parts: list[model.Node] = []
        steps: list[model.Step] = []
        pending: list[int] = []
        bad, last = False, node.span
        for selection, part in self.flat(node, depth):
            if isinstance(part, written.Without) and part.of is None:
                if not parts and not bad:
                    self.problem(
                        part.span, "without has no meaning before the first element", expected="an element before it"
                    )
                pending += self.negatives(part.part, depth)
                last = part.span
                continue
            made = self.node(part, depth + 1)
            bad = bad or made is None
            if made is None:
                continue
            if parts:
                if pending and selection == "strict":
                    self.problem(
                        last,
                        "without has no meaning in a step that is strictly adjacent",
                        hint="there is no row between the two: leave it out, or use ; or ->",
                    )
                steps.append(model.Step(selection, tuple(sorted(set(pending)))))
            parts.append(made)
            pending = []
        if pending and parts:
            if top:
                self.absent += [element for element in pending if element not in self.absent]
            else:
                self.problem(
                    last,
                    "without has no meaning at the end of a part",
                    expected="an element after it, or the end of the whole pattern",
                    hint="write (a; b) without n for nowhere between them",
                )
        if not parts or bad:
            return None
        return parts[0] if len(parts) == 1 else model.Sequence(tuple(parts), tuple(steps), node.span)

    def flat(self, node: written.Sequence, depth: int) -> list[tuple[written.Selection, written.Node]]:
        """The parts with the selection before each; a sequence in parentheses that begins or ends with `without` is
        as if it had none."""
        if depth > MAX_DEPTH:
            self.problem(node.span, f"this nests deeper than {MAX_DEPTH}", hint="write it with fewer parentheses")
            raise _TooMuch
        if len(node.selections) != max(0, len(node.parts) - 1):
            self.problem(
                node.span,
                "a sequence has a step between each two parts",
                expected=str(len(node.parts) - 1),
                found=str(len(node.selections)),
            )
            raise _TooMuch
        found: list[tuple[written.Selection, written.Node]] = []
        for at, part in enumerate(node.parts):
            selection = node.selections[at - 1] if at else "any"
            if isinstance(part, written.Sequence) and part.parts and (_bare(part.parts[0]) or _bare(part.parts[-1])):
                inner = self.flat(part, depth + 1)
                found += [(selection, inner[0][1]), *inner[1:]]
            else:
                found.append((selection, part))
        return found

    def negatives(self, node: written.Node, depth: int) -> list[int]:
        """The elements that may not come."""
        if isinstance(node, written.Atom):
            return [self.element(node, negative=True)]
        if isinstance(node, written.Either) and depth <= MAX_DEPTH:
            return [element for part in node.parts for element in self.negatives(part, depth + 1)]
        self.problem(
            node.span,
            "without is of one event",
            expected="an atom, or several with | between them",
            hint="what is made of several events is no single one; name one of them",
        )
        return []

    # ── elements ──

    def element(self, atom: written.Atom, *, negative: bool) -> int:
        """The number of an atom's element, a new one unless the same words were there before (`A B A` has two
        elements)."""
        name = atom.name
        if name is not None:
            at = next((at for at, element in enumerate(self.elements) if element.name == name), None)
            if at is not None:
                if self.atoms[at] != atom or self.elements[at].negative != negative:
                    self.problem(
                        atom.span,
                        f"the name {name!r} is there twice",
                        expected="one name for one element",
                        hint="rename one; the same element again is written in the same words",
                    )
                return at
            if not name.isidentifier() or name in RESERVED:
                self.problem(
                    atom.span,
                    "an element cannot be called so",
                    expected="a name of letters, digits and _",
                    found=name[:40],
                )
        if len(self.elements) >= model.MAX_ELEMENTS:
            self.problem(atom.span, "too many elements", expected=f"at most {model.MAX_ELEMENTS}")
            raise _TooMuch
        channels, type = self.channels(atom)
        if type is None:
            self.unknown.add(len(self.elements))
        else:
            self.template(atom, type)
        self.elements.append(
            model.Element(
                name or "", self.channel(atom), channels, type or NOTHING_KNOWN, None, negative, span=atom.span
            )
        )
        self.atoms.append(atom)
        if name is None:
            self.elements[-1] = replace(self.elements[-1], name=self.label(atom))
        return len(self.elements) - 1

    def label(self, atom: written.Atom) -> str:
        """A name for an element without one: what its channel is called."""
        taken = {element.name for element in self.elements} | self.given
        word = (
            "".join(c if c.isalnum() or c == "_" else "_" for c in atom.channel.rpartition(".")[2]).strip("_")
            or "event"
        )
        word = word if word.isidentifier() and word not in RESERVED else f"e_{word}"
        label, number = word, 1
        while label in taken:
            number += 1
            label = f"{word}_{number}"
        return label

    def channel(self, atom: written.Atom) -> str:
        return self.pattern.aliases.get(atom.channel, atom.channel)

    def channels(self, atom: written.Atom) -> tuple[tuple[str, ...], EventType | None]:
        """The channels that are meant, and the type of their events."""
        name = self.channel(atom)
        if not name:  # the notation has told what is wrong with it
            return (), None
        if is_pattern(name):
            found = tuple(sorted(known for known in self.types if matching(name, known)))
        else:
            found = (name,) if name in self.types else ()
        if not found:
            near = nearest(name, [*self.types, *self.pattern.aliases])
            what = "no channel is called so" if is_pattern(name) else f"no channel {name!r}"
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(self.types)[:8]) or 'none'}"
            here = atom.named is None and atom.channel in self.pattern.text[atom.span.start : atom.span.end]
            if here or name not in self.told:  # of what is named once for all atoms, one word is enough
                self.problem(atom.named or atom.span, what, expected=KNOWN, found=name[:80], hint=hint)
            self.told.add(name)
            return (), None
        records = {self.types[channel].record for channel in found}
        if len(records) > 1:
            types = ", ".join(f"{channel} ({self.types[channel].name})" for channel in found[:4])
            self.problem(
                atom.span,
                "the channels have different types",
                expected="one type",
                found=types,
                hint="name them one by one, with | between them",
            )
            return found, None
        return found, self.types[found[0]]

    def template(self, atom: written.Atom, type: EventType) -> None:
        """Whether the arguments are as many as there are fields, and the names of fields are right."""
        if atom.arguments is None:
            return
        fields = [f.name for f in type.record.fields]
        positional = [argument for argument in atom.arguments if argument.field is None]
        named = [argument for argument in atom.arguments if argument.field is not None]
        if len(positional) > len(fields) or (not named and len(positional) != len(fields)):
            shown = ", ".join(fields[:8]) + (" …" if len(fields) > 8 else "")
            self.problem(
                atom.span,
                f"arguments of {atom.channel}",
                expected=f"{len(fields)}: {shown}",
                found=str(len(positional)),
                hint="write * for any value, or name fields: (action = 'in')",
            )
        seen = set(fields[: len(positional)])
        for argument in named:
            assert argument.field is not None
            if argument.field not in fields:
                close = get_close_matches(argument.field, fields, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"its fields are: {', '.join(fields[:12])}"
                self.problem(argument.span, f"{type.name} has no field {argument.field!r}", hint=hint)
            elif argument.field in seen:
                self.problem(argument.span, f"the field {argument.field!r} is given twice", hint="leave one out")
            seen.add(argument.field)


def _bare(node: written.Node) -> bool:
    return isinstance(node, written.Without) and node.of is None


def _names(node: written.Node, depth: int = 0) -> set[str]:
    """Names that were given, anywhere."""
    if isinstance(node, written.Atom):
        return {node.name} if node.name else set()
    if depth > MAX_DEPTH:
        return set()
    inner: list[written.Node] = []
    match node:
        case written.Repeat(part=part):
            inner = [part]
        case written.Without(part=part, of=of):
            inner = [part] if of is None else [part, of]
        case written.Sequence(parts=parts) | written.Either(parts=parts) | written.Both(parts=parts):
            inner = list(parts)
    return set().union(*(_names(part, depth + 1) for part in inner))


def forbid(node: model.Node, elements: list[int]) -> model.Node:
    """The same with elements that may not come between any two of its events."""

    def more(step: model.Step) -> model.Step:
        return replace(step, forbidden=tuple(sorted({*step.forbidden, *elements})))

    match node:
        case model.Leaf():
            return node
        case model.Sequence(parts=parts, steps=steps):
            return replace(node, parts=tuple(forbid(p, elements) for p in parts), steps=tuple(map(more, steps)))
        case model.Either(parts=parts):
            return replace(node, parts=tuple(forbid(p, elements) for p in parts))
        case model.Both(parts=parts, step=step):
            return replace(node, parts=tuple(forbid(p, elements) for p in parts), step=more(step))
        case model.Repeat(part=part, step=step):
            return replace(node, part=forbid(part, elements), step=more(step))
