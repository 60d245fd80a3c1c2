"""Observers: what sees every change of objects within its turn, beside the triggers, and fires nothing.

Replicas at other nodes and safe zones are observers: they have to know of silent updates too, and what they remember is
written with the turn that it is of. An observer is told of each change once, in order, when the transaction that it is
of is done; should that be undone after all, so is what the observer has noted in the journal. It has errands of its
own, which are operations of transactions (`Administer`) in the same queue as everything else.

    open        before the first turn: what the file has
    changed     an object was created, updated (silently too) or destroyed; only the thread that runs turns is here
    ended       a turn is done and goes to the file: what it has come to can be looked at as a whole
    committed   everything so far is durable: what was to be sent may be
    forget      nothing since the last commit has happened; the journal has put back what was noted in it

`Observed` is triggers and observers together, as a turn sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwater.errors import ObjectError
from headwater.objects.journal import Journal

if TYPE_CHECKING:
    from headwater.objects.operations import Administer, Outcome
    from headwater.objects.reactions import Fired, Moment, Occurrence, Reactions
    from headwater.store import Tables
    from headwater.types import EventType

Errand = Callable[["Administer", "Moment"], Any]
CHANGES = frozenset(("created", "updated", "destroyed"))


class Observer:
    """What an observer may do; each of it does nothing unless it is overridden."""

    tables: Tables | None = None  # of the node's state, in which it keeps what it remembers

    def __init__(self) -> None:
        self.journal = Journal()  # that of its node's turns, once it is one of a node's
        self.type_named: Callable[[str], EventType | None] = lambda name: None  # the types of that node's objects
        self.numbers_of: Callable[[EventType], Sequence[int]] = lambda type: ()  # of those that are alike, in the file

    @property
    def errands(self) -> Mapping[str, Errand]:
        """By what an operation says it is; no two observers have the same."""
        return {}

    def open(self, moment: Moment) -> None:
        """What the file has, before the first turn."""

    def changed(self, occurrence: Occurrence, moment: Moment) -> None:
        """An object is another than before, or is not any more. Nothing here may wait, or raise for its own fault."""

    def ended(self, moment: Moment) -> bool:
        """A turn is done, and not undone any more unless its commit fails. Whether others are told of its time, so that
        no other turn may have the same."""
        return False

    def committed(self) -> None:
        """Everything so far is durable."""

    def forget(self) -> None:
        """Nothing since the last commit has happened."""


class Observed:
    """The triggers of a node and its observers: they meet `Reactions`."""

    def __init__(self, triggers: Reactions, journal: Journal, observers: Sequence[Observer] = ()) -> None:
        """The journal is that of the triggers, which take it back."""
        self._triggers, self._observers = triggers, tuple(observers)
        self._errands: dict[str, Errand] = {}
        for observer in self._observers:
            observer.journal = journal
            if known := self._errands.keys() & observer.errands.keys():
                raise ObjectError(f"observer: expected errands of its own, found {', '.join(sorted(known))} in use")
            self._errands.update(observer.errands)
        # What an observer leaves to `Observer` does nothing, and is not called with every turn.
        self._changed = [each.changed for each in self._observers if _overrides(each, "changed")]
        self._ended = [each.ended for each in self._observers if _overrides(each, "ended")]
        self._committed = [each.committed for each in self._observers if _overrides(each, "committed")]

    def open(self, moment: Moment) -> None:
        """What the file has for observers, before the first turn; triggers are opened by who has made them."""
        for observer in self._observers:
            observer.open(moment)

    # ── the contract of a turn ──

    def within(self, occurrence: Occurrence, moment: Moment) -> Sequence[Fired]:
        """Observers have no say in a transaction."""
        return self._triggers.within(occurrence, moment)

    def judge(self, occurrence: Occurrence, moment: Moment) -> Sequence[Fired]:
        """What triggers fire; observers see it first."""
        if occurrence.op in CHANGES:
            for changed in self._changed:
                changed(occurrence, moment)
        return self._triggers.judge(occurrence, moment)

    def note(self, occurrence: Occurrence, moment: Moment) -> None:
        """A silent update."""
        for changed in self._changed:
            changed(occurrence, moment)
        self._triggers.note(occurrence, moment)

    def administer(self, operation: Administer, moment: Moment) -> Any:
        """An errand of an observer, or of triggers."""
        errand = self._errands.get(operation.what)
        return self._triggers.administer(operation, moment) if errand is None else errand(operation, moment)

    def failed(self, fired: Fired, outcome: Outcome, moment: Moment) -> None:
        """What a trigger caused was undone."""
        self._triggers.failed(fired, outcome, moment)

    def ended(self, moment: Moment) -> bool:
        """A turn is done."""
        told = False
        for ended in self._ended:
            told = ended(moment) or told
        return told

    def mark(self) -> object:
        """Where all of them are: they share a journal."""
        return self._triggers.mark()

    def undo(self, mark: object) -> None:
        """Everything since was undone, in the file too."""
        self._triggers.undo(mark)

    def committed(self) -> None:
        """Everything so far is durable."""
        self._triggers.committed()
        for committed in self._committed:
            committed()

    def forget(self) -> None:
        """Nothing since the last commit has happened."""
        self._triggers.forget()
        for observer in self._observers:
            observer.forget()


def _overrides(observer: Observer, name: str) -> bool:
    return getattr(observer.__class__, name) is not getattr(Observer, name)


__all__ = ["Errand", "Observed", "Observer"]
