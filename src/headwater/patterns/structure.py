"""What a pattern's tree says by itself: how many events it takes, what comes before what, what may be taken twice.

Nothing here knows types or conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headwater.patterns.model import Both, Either, Leaf, Node, Pattern, Repeat, Sequence, Step, leaves


def least(node: Node) -> int:
    """Events that an occurrence has at least."""
    match node:
        case Leaf():
            return 1
        case Repeat(part=part, least=rounds):
            return least(part) * rounds
        case Either(parts=parts):
            return min(map(least, parts))
        case Sequence(parts=parts) | Both(parts=parts):
            return sum(map(least, parts))


def most(node: Node) -> int | None:
    """Events that an occurrence has at most; None: there is no limit."""
    match node:
        case Leaf():
            return 1
        case Repeat(part=part, most=rounds):
            inner = most(part)
            return None if inner is None or rounds is None else inner * rounds
        case Either(parts=parts) | Sequence(parts=parts) | Both(parts=parts):
            each = [most(part) for part in parts]
            known = [count for count in each if count is not None]
            if len(known) < len(each):
                return None
            return max(known) if isinstance(node, Either) else sum(known)


def firsts(node: Node) -> set[int]:
    """Elements with which an occurrence can begin."""
    match node:
        case Leaf(element=element):
            return {element}
        case Repeat(part=part):
            return firsts(part)
        case Either(parts=parts) | Both(parts=parts):
            return set().union(*map(firsts, parts))
        case Sequence(parts=parts):
            found: set[int] = set()
            for part in parts:
                found |= firsts(part)
                if least(part):
                    break
            return found


def places(node: Node) -> int:
    """Leaves, each as often as the repetitions around it have rounds that must be told apart: what an automaton of it
    may need."""
    match node:
        case Leaf():
            return 1
        case Repeat(part=part, least=at_least, most=at_most):
            return places(part) * max(1, at_least, at_most or 0)
        case Both(parts=parts):
            product = 1
            for part in parts:  # how far each part is, independently
                product *= places(part) + 1
            return product
        case Either(parts=parts) | Sequence(parts=parts):
            return sum(map(places, parts))


def times(node: Node, element: int, *, least: bool) -> float:
    """How often an occurrence takes an element, at least or at most."""
    match node:
        case Leaf(element=other):
            return float(other == element)
        case Repeat(part=part, least=fewest, most=greatest):
            inner = times(part, element, least=least)
            rounds = float(fewest) if least else float("inf") if greatest is None else float(greatest)
            return 0.0 if inner == 0 else inner * rounds
        case Either(parts=parts):
            counts = [times(part, element, least=least) for part in parts]
            return min(counts) if least else max(counts)
        case Sequence(parts=parts) | Both(parts=parts):
            return sum(times(part, element, least=least) for part in parts)


@dataclass
class Order:
    """By element: those that may have been taken before it, those whose order to it is open and that are sure to be
    taken with it, and those of which only the first holds."""

    before: dict[int, set[int]] = field(default_factory=dict)
    together: dict[int, set[int]] = field(default_factory=dict)
    doubtful: dict[int, set[int]] = field(default_factory=dict)

    def forbidden(self, elements: Iterable[int], prior: set[int]) -> None:
        for element in elements:
            self.before.setdefault(element, set()).update(prior)


def order(root: Node, absent: Iterable[int]) -> Order:
    """Of every element, negative ones included."""
    found = Order()
    _visit(root, set(), found)
    found.forbidden(absent, _elements(root))
    return found


def _elements(node: Node) -> set[int]:
    return {leaf.element for leaf in leaves(node)}


def _visit(node: Node, prior: set[int], found: Order) -> None:
    """Go through the tree in the order of its events, noting for each element which ones may have been taken before
    it; `prior` are those before this part."""
    match node:
        case Leaf(element=element):
            found.before.setdefault(element, set()).update(prior)
        case Sequence(parts=parts, steps=steps):
            for at, part in enumerate(parts):
                _visit(part, prior, found)
                prior = prior | _elements(part)
                if at < len(steps):
                    found.forbidden(steps[at].forbidden, prior)
        case Either(parts=parts):
            for part in parts:
                _visit(part, prior, found)
        case Repeat(part=part, most=rounds, step=step):
            again = rounds is None or rounds > 1
            found.forbidden(step.forbidden, prior | _elements(part))
            _visit(part, prior | _elements(part) if again else prior, found)
        case Both(parts=parts, step=step):
            found.forbidden(step.forbidden, prior | _elements(node))
            for part in parts:
                others = [other for other in parts if other is not part]
                _visit(part, prior.union(*map(_elements, others)), found)
                for element in _elements(part):
                    for other in others:
                        for one in _elements(other):
                            sure = times(other, one, least=True) >= 1
                            (found.together if sure else found.doubtful).setdefault(element, set()).add(one)


def steps(node: Node) -> Iterator[Step]:
    """All that lead from one taken event to the next."""
    match node:
        case Leaf():
            return
        case Repeat(part=part, most=rounds, step=step):
            if rounds is None or rounds > 1:
                yield step
            yield from steps(part)
            return
        case Both(step=step):
            yield step
        case Sequence(steps=between):
            yield from between
        case Either():
            pass
    for part in node.parts:
        yield from steps(part)


def contradicting(pattern: Pattern) -> frozenset[str]:
    """The channels of which a further event, had there been one, could make a match none: what is said to be absent,
    what a step may not pass over, and all of them where rows are counted or one match decides about others. Of other
    channels, a match says nothing but what it has taken."""
    everything = frozenset(channel.name for channel in pattern.channels)
    by_rows = pattern.window is not None and pattern.window.rows is not None
    between = list(steps(pattern.root))
    if by_rows or pattern.after.rule != "no skip" or not pattern.reuse:
        return everything
    if any(step.selection == "strict" for step in between):
        return everything
    elements = {*pattern.absent, *(element for step in between for element in step.forbidden)}
    if any(step.selection == "next" for step in between):
        elements |= _elements(pattern.root)
    return frozenset(name for element in elements for name in pattern.elements[element].channels)


def repeated_by_any(node: Node, within: bool = False) -> set[int]:
    """Elements of which any subset of events may be taken: repeated with the selection `any`."""
    match node:
        case Leaf(element=element):
            return {element} if within else set()
        case Repeat(part=part, most=rounds, step=step):
            loose = step.selection == "any" and (rounds is None or rounds > 1)
            return repeated_by_any(part, within or loose)
        case Sequence(parts=parts, steps=steps):
            loose = any(step.selection == "any" for step in steps)
        case Both(parts=parts, step=step):
            loose = step.selection == "any"
        case Either(parts=parts):
            loose = False
    found = set().union(*(repeated_by_any(part, within) for part in parts))
    if loose:
        seen: set[int] = set()
        for part in parts:
            found |= seen & _elements(part)
            seen |= _elements(part)
    return found


def keeps_many_runs(node: Node, follows: bool = False) -> Node | None:
    """The first part for which one run is not enough when there is no window: a repetition without limit, whose events
    are all kept, or one that is reached by a step `any` although more may follow, so that each row begins another."""
    match node:
        case Leaf():
            return None
        case Repeat(part=part, most=rounds, step=step):
            if rounds is None:
                return node
            if rounds > 1 and step.selection == "any" and (rounds > 2 or follows or most(part) != 1):
                return node
            return keeps_many_runs(part, follows or rounds > 1)
        case Either(parts=parts):
            return next((found for part in parts if (found := keeps_many_runs(part, follows))), None)
        case Both(parts=parts, step=step):
            if step.selection == "any" and (len(parts) > 2 or follows or most(node) != len(parts)):
                return node
            return next((found for part in parts if (found := keeps_many_runs(part, True))), None)
        case Sequence(parts=parts, steps=steps):
            for at, part in enumerate(parts):
                more = follows or at + 1 < len(parts)
                if at and steps[at - 1].selection == "any" and (more or most(part) != 1):
                    return part
                if found := keeps_many_runs(part, more):
                    return found
            return None
