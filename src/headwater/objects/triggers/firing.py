"""Which triggers fire by what happens: the reactions of a turn.

At each event the histories of its object take it in; then all conditions are judged, by priority and in the order of
installation; then what fires is said, all of it at once. Nothing here carries anything out. What is remembered is
written with the turn, and taken back with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import HeadwaterError, StoreError
from headwater.objects.journal import Journal, Kept
from headwater.objects.reactions import Fired, Moment, Notice, Occurrence
from headwater.objects.triggers import tables
from headwater.objects.triggers.deadlines import Deadlines, NoTimer, Timer
from headwater.objects.triggers.distributed import FIRED
from headwater.objects.triggers.events import operations
from headwater.objects.triggers.installed import Installed
from headwater.objects.triggers.pasts import Pasts
from headwater.objects.triggers.registry import Registry, is_other, meant
from headwater.objects.triggers.seen import Seen, World
from headwater.objects.triggers.shares import Shares
from headwater.objects.triggers.variables import WHOLE, Variables

if TYPE_CHECKING:
    from headwater.objects.methods import Methods
    from headwater.objects.operations import Outcome
    from headwater.store.migrations import Execute
    from headwater.types import EventType


class Listening(Protocol):
    """Whoever has channels: events of those that are heard are judged in the queue (`Administer("received", …)`)."""

    def hear(self, channel: str, type: EventType) -> None:
        """From now on."""
        ...

    def ignore(self, channel: str) -> None:
        """Not any more."""
        ...


CHANNEL = "triggers"  # notifications of a trigger are on `triggers.NODE.NAME`


class Firing:
    """The triggers of a node at work; only the thread that runs turns is here."""

    def __init__(self, node: str, methods: Methods) -> None:
        self.node, self.methods = node, methods
        self.journal = Journal()
        self.registry = Registry()
        self.shares = Shares()  # of other nodes
        self.variables = Variables(self.journal, self.shares)
        self.pasts = Pasts(self.journal, self.shares)
        self.previous: Kept[str, bytes] = Kept(self.journal)
        self.deadlines = Deadlines(self.journal, NoTimer())
        self._listening: Listening | None = None
        self._heard: dict[str, EventType] = {}  # channels, as far as whoever listens was told
        self._world = World(self.pasts, self.variables, self.previous, methods)
        self._inputs: dict[str, int] = {}  # objects whose previous values are asked for, and by how many
        self._taken: set[tuple[int, int]] = set()  # what histories have already, of this turn

    # ── the file ──

    def write(self, execute: Execute) -> None:
        """What has changed since the last time."""
        self.variables.write(execute)
        self.pasts.write(execute)
        for object, record in self.previous.dirty():
            tables.write_previous(execute, object, record)
        self.previous.settled()
        self.deadlines.write(execute)

    def load(self, execute: Execute) -> None:
        """What the file has, once all triggers are there."""
        self.variables.load(execute)
        self.pasts.load(execute)
        for object, record in tables.previous(execute):
            self.previous.load(object, record)
        self.deadlines.load(execute)

    # ── triggers come and go ──

    def start(self, installed: Installed, now: int, times: int = 1) -> None:
        """A trigger is at work from the next event on; with -1, it is not any more. That can be taken back."""
        self._start(installed, now, times)
        self.journal.did(lambda: self._start(installed, now, -times))

    def _start(self, installed: Installed, now: int, times: int) -> None:
        if times > 0:
            self.registry.add(installed)
        else:
            self.registry.remove(installed)
        self.pasts.ask(installed, times)
        if times > 0:
            self.variables.ask(installed.number, installed.trigger.asker)
        for listened in installed.trigger.on:
            self.deadlines.ask(listened, times, now)
        if "previous" in installed.reads:
            for each in (given for given in installed.trigger.inputs.values() if not given.method):
                path = each.name[2:].partition("/")[2].partition(".")[0]
                self._inputs[path] = self._inputs.get(path, 0) + times
                if self._inputs[path] <= 0:
                    del self._inputs[path]

    def wait(self, installed: Installed, moment: Moment) -> None:
        """Objects that are there when a trigger begins are unchanged since then, as far as is known."""
        for listened in installed.trigger.on:
            named = listened.kind == "unchanged" and not listened.is_pattern
            if named and moment.value(listened.name[2:].partition("/")[2]) is not None:
                self.deadlines.begin(listened.name, listened, moment.at)

    # ── the contract of a turn ──

    def within(self, occurrence: Occurrence, moment: Moment) -> Sequence[Fired]:
        """What fires within the transaction: usually there is nothing that could."""
        if not self.registry.by_name or not self.registry.within():
            return ()
        return self._judge(occurrence, moment, within=True)

    def judge(self, occurrence: Occurrence, moment: Moment) -> Sequence[Fired]:
        """What else fires."""
        if not self.registry.by_name:
            return ()
        found = self._judge(occurrence, moment, within=False)
        if occurrence.op == "destroyed":
            self._end(occurrence.object, moment)
        return found

    def note(self, occurrence: Occurrence, moment: Moment) -> None:
        """A silent update."""
        if not self.registry:
            return
        self._take(occurrence, self.whole(occurrence), silent=True)
        self.write(moment.execute)

    def failed(self, fired: Fired, outcome: Outcome, moment: Moment) -> None:
        """What a trigger caused was undone."""
        installed = self.registry.by_name.get(fired.trigger)
        if installed is not None:
            installed.counts.failed += 1
            installed.counts.failure = "; ".join(each.text for each in outcome.problems)

    def ended(self, moment: Moment) -> bool:
        """Triggers have had their say when each transaction was done."""
        return False

    def mark(self) -> object:
        """Where it is, to be put back there."""
        return self.journal.mark()

    def undo(self, mark: object) -> None:
        """Everything since was undone, in the file too."""
        assert isinstance(mark, int)
        self.journal.back_to(mark)
        self._taken.clear()

    def committed(self) -> None:
        """Nothing so far will be undone."""
        self.journal.settled()
        self._taken.clear()
        self.deadlines.committed()
        if self._heard or self.registry.channels:
            self._hear()

    def wait_with(self, timer: Timer, listening: Listening) -> None:
        """Whoever has a clock, and channels."""
        self.deadlines.timer, self._listening = timer, listening

    def _hear(self) -> None:
        """Channels that triggers listen to now, and those that they do not any more."""
        wanted = self.registry.channels
        if self._listening is None or wanted.keys() == self._heard.keys():
            return
        for name in self._heard.keys() - wanted.keys():
            self._listening.ignore(name)
        for name in wanted.keys() - self._heard.keys():
            self._listening.hear(name, wanted[name])
        self._heard = dict(wanted)

    def forget(self) -> None:
        """Nothing since the last commit has happened."""
        self.undo(0)

    # ── judging ──

    def whole(self, occurrence: Occurrence) -> str:
        """The name of what it is about: of an object, with its owner."""
        return occurrence.object if " " in occurrence.object or not self._is_object(occurrence) else (
            f"//{self.node}/{occurrence.object}"
        )  # fmt: skip

    def _is_object(self, occurrence: Occurrence) -> bool:
        return occurrence.op not in ("ticked", "received", FIRED)

    def _judge(self, occurrence: Occurrence, moment: Moment, *, within: bool) -> list[Fired]:
        """All conditions first, then what they cause."""
        object = self.whole(occurrence)
        self._take(occurrence, object, silent=False)
        self._world.results.clear()
        found = self.registry.found(occurrence, object, within=within, held=self.variables.holding(object))
        firing = [(each, Seen(each, occurrence, object, object, moment, self._world), object) for each in found.begun]
        true: set[int] = set()
        for installed in found.asked:
            key = object if installed.condition.apart else WHOLE
            seen = Seen(installed, occurrence, object, key, moment, self._world)
            installed.counts.evaluated += 1
            if not self._asked(installed, installed.condition.holds, seen):
                continue
            true.add(installed.number)
            if installed.trigger.when == "each" or not self.variables.get(installed.number, key).holds:
                firing.append((installed, seen, key))
        firing.sort(key=_rank)
        for number in found.ceased:
            self._cease(number, object)
        self._fall(occurrence, object, true, within)
        caused = [made for each in firing if (made := self._fire(*each, occurrence, object)) is not None]
        self.write(moment.execute)
        return caused

    def _asked(self, installed: Installed, ask: Callable[[Seen], Any], seen: Seen) -> Any:
        """What may fail for no fault of the event's: then it does not hold, and that is reported."""
        try:
            return ask(seen)
        except StoreError:
            raise
        except (HeadwaterError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            installed.counts.failed += 1
            installed.counts.failure = " ".join(str(error).split())
            return None

    def _fall(self, occurrence: Occurrence, object: str, true: set[int], within: bool) -> None:
        """Conditions that held, were asked by this event, and do not hold any more."""
        for key in (object, WHOLE):
            for number in self.variables.holding(key) - self.registry.plain - true:
                installed = self.registry.by_number.get(number)
                if installed is None or (installed.trigger.coupling == "within") != within:
                    continue
                if self._concerns(installed, occurrence, object):
                    self._cease(number, key)

    def _cease(self, number: int, key: str) -> None:
        self.variables.put(number, key, self.variables.get(number, key)._replace(holds=False))

    def _concerns(self, installed: Installed, occurrence: Occurrence, object: str) -> bool:
        """Whether a trigger listens to this at all."""
        for entry in installed.condition.entries:
            listened = entry.listened
            mine = listened.is_pattern or listened.subject == object
            if not mine or entry.subject != occurrence.type:  # a pattern of names may fit objects of other types
                continue
            if occurrence.op in operations(listened) and meant(listened, occurrence):
                return True
        return False

    def _fire(self, installed: Installed, seen: Seen, key: str, occurrence: Occurrence, object: str) -> Fired | None:
        """What a firing causes, computed from what was seen; then it is remembered as the last one."""
        trigger, transaction = installed.trigger, None
        if installed.remembers and (why := self.variables.refused(installed.number, key)) is not None:
            installed.counts.failed += 1
            installed.counts.failure = str(why)
            return None
        notices: tuple[Notice, ...] = ()
        if installed.action is not None:
            action = installed.action
            transaction = self._asked(installed, lambda seen: action.transaction(seen, object), seen)
            if transaction is None:
                return None
        if installed.notification is not None:
            told = installed.notification
            record = self._asked(installed, told.record, seen)
            notices = (Notice(self.channel(installed), told.type, record),) if record is not None else ()
        installed.counts.fired += 1
        installed.counts.caused += transaction is not None
        installed.counts.evaluated += installed.plain is not None
        installed.counts.vetoed += bool(trigger.veto)
        value = self.variables.get(installed.number, key)
        if trigger.when == "becomes":
            value = value._replace(holds=True)
        if installed.keeps_last:
            value = value._replace(last=occurrence.new)
        self.variables.put(installed.number, key, value)
        return Fired(trigger.name, transaction, notices, trigger.coupling, trigger.on_failure, trigger.veto)

    def channel(self, installed: Installed) -> str:
        """Where its notifications are."""
        return f"{CHANNEL}.{self.node}.{installed.name}"

    # ── what is remembered of every event ──

    def _take(self, occurrence: Occurrence, object: str, *, silent: bool) -> None:
        """Histories, previous values and what is waited for: once, however often it is judged."""
        place = occurrence.turn, occurrence.position
        if place in self._taken:
            return
        self._taken.add(place)
        if not self._is_object(occurrence):
            return
        if occurrence.op in ("created", "updated", "raised"):
            pair = {"old": occurrence.old_raw, "new": occurrence.new_raw}
            self.pasts.take(object, occurrence.type, occurrence.at, pair, silent=silent)
        if occurrence.op == "updated" and occurrence.object in self._inputs:
            self.previous.put(occurrence.object, occurrence.old)
        if occurrence.op in ("created", "updated"):
            for listened in self.deadlines.waited(object):
                if not listened.member or is_other(listened.member, occurrence):
                    self.deadlines.changed(object, listened, occurrence.at)

    def _end(self, path: str, moment: Moment) -> None:
        """An object is no more: what is created under its name is another."""
        object = f"//{self.node}/{path}"
        self.pasts.end(object)
        self.deadlines.end(object)
        self.variables.forget_object(object)
        self.previous.put(path, None)
        self.write(moment.execute)


def _rank(firing: tuple[Installed, Seen, str]) -> tuple[int, int]:
    return firing[0].rank


__all__ = ["CHANNEL", "Firing", "Listening"]
