"""A turn: a transaction from outside, and everything that triggers cause by it, before any other from outside runs.

What one transaction causes runs right after it, before what was caused earlier and still waits: depth first. Each
transaction is a savepoint: one that fails is undone alone, and reported, unless its trigger wants the whole turn undone
then. What cascades too deep or too far ends the turn: it is undone, or the rest is left out, by choice.

The turn is the unit of commit: whoever calls `run` opens the SQLite transaction, and commits one turn or several.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

from headwater.errors import ConfigError, ConfigProblem, ObjectError, StoreError
from headwater.objects import tables
from headwater.objects.execution import Execution, Refused, TurnMoment
from headwater.objects.operations import TICKET, Failure, Outcome, Problem, Transaction, check_form, pack
from headwater.objects.reactions import Fired, Occurrence, Reactions
from headwater.objects.turn_clock import TurnClock

if TYPE_CHECKING:
    from headwater.objects.checker import Checker
    from headwater.objects.outbox import Outbox
    from headwater.objects.world import World
    from headwater.store.migrations import Execute

log = logging.getLogger("headwater")
FAILURES_TOLD = 64  # of one turn; how many more there were is said in the last


@dataclass(frozen=True, slots=True)
class Cascades:
    """How far what triggers cause may go in one turn, and what becomes of a turn that goes further."""

    depth: int = 64
    count: int = 10_000
    beyond: Literal["roll back", "cut"] = "roll back"

    def __post_init__(self) -> None:
        problems = [
            ConfigProblem(f"Cascades: {name}", "a number from 1 on", repr(value))
            for name, value in (("depth", self.depth), ("count", self.count))
            if not isinstance(value, int) or isinstance(value, bool) or value < 1
        ]
        if self.beyond not in ("roll back", "cut"):
            problems.append(ConfigProblem("Cascades: beyond", "'roll back' or 'cut'", repr(self.beyond)))
        if problems:
            raise ConfigError(problems)


class TooFar(Exception):
    """The turn is undone: what it caused was too much, or a part of it failed that it must not be without."""


class Turns:
    """Runs turns, one after the other, in the SQLite transaction that is open."""

    def __init__(
        self,
        node: str,
        world: World,
        execution: Execution,
        outbox: Outbox,
        checker: Checker,
        reactions: Reactions,
        now: Callable[[], int],
        cascades: Cascades,
    ) -> None:
        self._node, self._world, self._execution, self._outbox = node, world, execution, outbox
        self._checker, self.cascades, self.clock = checker, cascades, TurnClock(now)
        self.reactions = reactions
        self._next, self._last = 1, 0  # numbers of turns that are reserved
        self.queued: list[Transaction] = []  # decoupled ones of this SQLite transaction, for the queue to take
        self._told = 0  # failures of the turn under way
        self.caused = self.failed = self.undone = self.cuts = 0  # counts, for reports

    def react(self, reactions: Reactions) -> None:
        """Have others react from now on, between two turns."""
        self.reactions = self._execution.reactions = reactions

    def forget_numbers(self) -> None:
        """The numbers that were reserved are not, since that was not committed."""
        self._next, self._last = 1, 0

    def run(self, transaction: Transaction) -> Outcome:
        """What has become of it. It is committed with the SQLite transaction that is open."""
        execute = self._world.execute
        if self._next > self._last:
            self._next, self._last = tables.reserve_turns(execute)
        turn = self._next
        at = self.clock.begin()
        self._next += 1
        moment = TurnMoment(self._node, turn, at, self._world, self._outbox.stage)
        marks = self._begin(execute, "SAVEPOINT turn_")
        outcome = Outcome(True, turn, at)
        queued, self._told = len(self.queued), 0
        wrong: Exception | None = None
        try:
            self._cascade(transaction, moment, outcome)
            if self.reactions.ended(moment):
                self.clock.told(at)
        except StoreError:
            raise
        except Exception as error:  # also what nobody expects: it ends this turn, and no other
            wrong = error
            if not isinstance(error, (Refused, TooFar)):
                log.error("objects: turn %d was undone: %s: %s", turn, type(error).__name__, error, exc_info=error)
        if wrong is not None:
            self.undone += 1
            self._undo(execute, "turn_", marks)
            del self.queued[queued:]
            said = str(wrong) if isinstance(wrong, TooFar) else f"{type(wrong).__name__}: {wrong}"
            problems: tuple[Problem, ...] = (Problem(0, said),)
            if isinstance(wrong, Refused):
                problems = self._problems(transaction, wrong)
            outcome = Outcome(False, turn, at, problems=problems, failures=outcome.failures)
        else:
            self._outbox.write(execute)  # what fails here undoes the whole commit: numbers are given by then
        execute("RELEASE turn_")
        return outcome

    def _problems(self, transaction: Transaction, refused: Refused) -> tuple[Problem, ...]:
        """Why it was not done: that, and all else that can be said of it without doing it."""
        found = {each.operation: each for each in self._checker.problems(transaction)}
        found[refused.operation] = Problem(refused.operation, refused.text)
        return tuple(found[number] for number in sorted(found))

    def _cascade(self, transaction: Transaction, moment: TurnMoment, outcome: Outcome) -> None:
        """The transaction from outside, and what it causes, depth first."""
        waiting: list[tuple[Fired, int]] = []  # the next one last
        outcome.results, happened = self._one(transaction, moment, 0)
        self._judge(happened, moment, 1, waiting, outcome)
        count = 0
        while waiting:
            fired, depth = waiting.pop()
            count += 1
            if count > self.cascades.count or depth > self.cascades.depth:
                self._too_far(fired, depth, outcome)
                return
            self._caused(fired, depth, moment, waiting, outcome)

    def _too_far(self, fired: Fired, depth: int, outcome: Outcome) -> None:
        """The bound of cascades is reached: the turn is undone, or what waits is left out."""
        bound = self.cascades
        deep = depth > bound.depth
        what = f"{bound.depth:,} transactions deep" if deep else f"{bound.count:,} transactions"
        text = f"expected triggers to cause at most {what} in a turn, found more, by trigger {fired.trigger!r}"
        if bound.beyond == "roll back":
            raise TooFar(f"{text}; everything was undone")
        self.cuts += 1
        outcome.cut = True
        self._report(outcome, fired, f"{text}; the rest was left out")

    def _caused(
        self, fired: Fired, depth: int, moment: TurnMoment, waiting: list[tuple[Fired, int]], outcome: Outcome
    ) -> None:
        """A transaction of a trigger: a savepoint of its own."""
        assert fired.transaction is not None
        self.caused += 1
        execute, name = moment.execute, f"caused_{depth}"
        marks = self._begin(execute, f"SAVEPOINT {name}")
        try:
            check_form(fired.transaction)
            moment.step += 1
            _, happened = self._one(fired.transaction, moment, depth)
        except (Refused, ObjectError) as error:
            self._undo(execute, name, marks)
            execute(f"RELEASE {name}")
            text = error.text if isinstance(error, Refused) else str(error)
            self._report(outcome, fired, text)
            if fired.on_failure == "abort turn":
                raise TooFar(f"trigger {fired.trigger!r}: {text}; everything was undone") from None
            number = error.operation if isinstance(error, Refused) else 0
            said = Outcome(False, moment.turn, moment.at, problems=(Problem(number, text),))
            self.reactions.failed(fired, said, moment)
            return
        execute(f"RELEASE {name}")
        self._judge(happened, moment, depth + 1, waiting, outcome)

    def _one(
        self, transaction: Transaction, moment: TurnMoment, depth: int
    ) -> tuple[dict[str, object], list[Occurrence]]:
        """The operations of a transaction, and what triggers that are coupled within it add to them."""
        results, happened = self._execution.run(transaction, moment, depth)
        added = at = 0
        while at < len(happened):
            occurrence = happened[at]
            at += 1
            if not occurrence.event:
                continue
            for fired in self.reactions.within(occurrence, moment):
                if fired.veto:
                    raise Refused(0, f"trigger {fired.trigger!r} does not allow it: {fired.veto}")
                for notice in fired.notices:
                    moment.notify(notice)
                if fired.transaction is None:
                    continue
                added += 1
                if added > self.cascades.count:
                    raise Refused(0, f"trigger {fired.trigger!r}: more than {self.cascades.count:,} within it")
                try:
                    happened += self._execution.run(fired.transaction, moment, depth)[1]
                except Refused as error:
                    raise Refused(0, f"trigger {fired.trigger!r}: {error.text}") from error
        return results, happened

    def _judge(
        self,
        happened: list[Occurrence],
        moment: TurnMoment,
        depth: int,
        waiting: list[tuple[Fired, int]],
        outcome: Outcome,
    ) -> None:
        """All conditions of all events of a transaction, before any of their actions; these run next, in order."""
        reactions, actions = self.reactions, list[tuple[Fired, int]]()
        for occurrence in happened:
            if not occurrence.event:
                reactions.note(occurrence, moment)
                continue
            for fired in reactions.judge(occurrence, moment):
                for notice in fired.notices:
                    moment.notify(notice)
                if fired.transaction is None:
                    continue
                if fired.coupling == "decoupled":
                    self._queue(fired, occurrence, moment, len(actions), outcome)
                else:
                    actions.append((fired, depth))
        waiting += reversed(actions)

    def _queue(self, fired: Fired, occurrence: Occurrence, moment: TurnMoment, at: int, outcome: Outcome) -> None:
        """To the back of the external queue, under a ticket that the turn and the trigger give it."""
        assert fired.transaction is not None
        said = f"{moment.node}\0{fired.trigger}\0{moment.turn}\0{occurrence.position}\0{at}"
        ticket = blake2b(said.encode(), digest_size=TICKET, person=b"hw-decoupled").digest()
        last = fired.transaction
        transaction = Transaction(last.operations, ticket, last.params, f"trigger {fired.trigger}")
        try:
            check_form(transaction)
            pack(transaction)
        except ObjectError as error:
            self._report(outcome, fired, str(error))
            return
        self.queued.append(transaction)

    def _report(self, outcome: Outcome, fired: Fired, text: str) -> None:
        self.failed += 1
        self._told += 1
        if self._told > FAILURES_TOLD:
            left_out = self._told - FAILURES_TOLD
            outcome.failures = outcome.failures[:-1]
            text = f"{text}; and {left_out:,} more of this turn that {'is' if left_out == 1 else 'are'} not told"
        outcome.failures += (Failure(fired.trigger, text),)

    def _begin(self, execute: Execute, savepoint: str) -> tuple[int, int, object]:
        execute(savepoint)
        return self._world.mark(), self._outbox.mark(), self.reactions.mark()

    def _undo(self, execute: Execute, name: str, marks: tuple[int, int, object]) -> None:
        execute(f"ROLLBACK TO {name}")
        self._world.undo(marks[0])
        self._outbox.undo(marks[1])
        self.reactions.undo(marks[2])


__all__ = ["Cascades", "Reactions", "TooFar", "Turns"]
