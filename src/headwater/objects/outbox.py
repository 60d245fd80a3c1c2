"""What leaves after the commit: changes, raised events and notices, numbered in the transaction of their turn.

During a turn things are staged; when it ends they get their numbers and are written, with everything else that the turn
has done. After the commit a thread of its own hands them to the outlets, in order, channel by channel. How far that is
gets written now and then: after a kill some are handed over again, under the same numbers, and an outlet that knows its
last number leaves those out. One that has gone further than the state knows (an older state was put back beside a newer
log) goes on behind that: before the first number of a life is given, the outlet is asked for its last one.

What cannot be sent is tried again; whatever waits too long in memory is read from the file instead.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import ClosedError, EncodeError, HeadwaterError
from headwater.objects import tables
from headwater.objects.object_types import CHANNEL, packed, unpacked
from headwater.objects.reactions import Leaving, Notice, Outlets
from headwater.threads import Crashes, Supervised
from headwater.types.model import Field, Scalar

if TYPE_CHECKING:
    from headwater.store.migrations import Execute
    from headwater.store.state import RoomTables
    from headwater.types import EventType

log = logging.getLogger("headwater")
HELD = 65_536  # records that may wait in memory; what is beyond that is in the file only
SENT_EVERY = 1024  # records after which it is written how far a channel is
RETRY_SECONDS = 1.0


class LeavingChannel:
    """A channel on which something leaves: the last number given, and sent, and the last of which that is written.
    `floor` is the last one that its outlet had when the first number of this life was given; None: not asked yet.
    Those up to `again` are of a life before."""

    __slots__ = ("again", "floor", "given", "name", "number", "opened", "sent", "staged", "type", "written")

    def __init__(self, number: int, name: str, type: EventType, sent: int, given: int) -> None:
        self.number, self.name, self.type = number, name, type
        self.sent = self.written = sent
        self.given = self.staged = self.again = given
        self.floor: int | None = None
        self.opened = False


class Outbox:
    """Of one node. The turn thread stages, and writes; another thread sends."""

    def __init__(self, tables_: RoomTables, execute: Execute, outlets: Outlets, crashes: Crashes, name: str) -> None:
        self._tables, self._outlets = tables_, outlets
        self._channels: dict[str, LeavingChannel] = {}
        for number, channel, form, sent, given in tables.channels_of(execute):
            self._channels[channel] = LeavingChannel(number, channel, unpacked(form), sent, given)
        self._staged: list[Notice] = []
        self._unsent: list[tuple[LeavingChannel, Leaving]] = []  # written, and not committed yet
        self._new: list[str] = []  # channels that are not committed yet
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._ready: deque[tuple[LeavingChannel, Leaving]] = deque()
        self._behind = set(self._channels)  # read from the file; all are open from the start, so that others know them
        self._untidy: list[LeavingChannel] = []  # of which it is worth writing how far they are
        self._stopped = self._busy = self._doubtful = False
        self._troubled: set[str] = set()  # channels that could not be sent to, and are tried
        self._again = 0.0  # at this time
        self._trouble: dict[str, str] = {}  # what was said then
        self._older: dict[str, tuple[int, int]] = {}  # channels of which the state knew less than their outlet: both
        self._thread = Supervised(self._send_all, f"headwater-{name}-outbox", crashes, again=lambda: not self._stopped)

    def start(self) -> None:
        """Send what is committed; first what was left from a life before."""
        self._thread.start()

    # ── within a turn ──

    def stage(self, notice: Notice) -> None:
        """Something leaves if the turn is committed."""
        self._staged.append(notice)

    def mark(self) -> int:
        """Where it is, to be put back there."""
        return len(self._staged)

    def undo(self, mark: int) -> None:
        """What was staged since does not leave."""
        del self._staged[mark:]

    def write(self, execute: Execute) -> None:
        """The turn is done: number and write what was staged in it."""
        for notice in self._staged:
            channel = self._channels.get(notice.channel)
            if channel is None or (channel.type is not notice.type and channel.type != notice.type):
                channel = self._open(execute, notice)
            if channel.floor is None or channel.staged < channel.floor:
                self._align(execute, channel)
            channel.staged += 1
            tables.leave(execute, channel.number, channel.staged, notice.record)
            self._unsent.append((channel, Leaving(channel.name, channel.staged, notice.record)))
        self._staged.clear()

    def _open(self, execute: Execute, notice: Notice) -> LeavingChannel:
        """A channel that nothing has left on, or that is of another type now."""
        form, known = packed(notice.type), self._channels.get(notice.channel)
        if known is not None:
            self._convert(execute, known, notice.type)
            tables.replace_channel(execute, known.number, form)
            known.type, known.opened = notice.type, False
            return known
        number = tables.add_channel(execute, notice.channel, form)
        made = self._channels[notice.channel] = LeavingChannel(number, notice.channel, notice.type, 0, 0)
        self._new.append(notice.channel)
        return made

    def _convert(self, execute: Execute, channel: LeavingChannel, type: EventType) -> None:
        """What has not left yet becomes an event of the channel's new type, under its number: what it does not have is
        missing, or 0. Else it would never leave, and nothing behind it."""
        before, fields = channel.type, type.record.fields
        same = {each.name for each in fields if each.name in before.record.by_name
                and before.record.by_name[each.name].type == each.type}  # fmt: skip
        for seq, record in tables.all_leaving(execute, channel.number, channel.sent):
            raw = before.decode_raw(record)
            made = {each.name: raw[each.name] if each.name in same else _absent(each) for each in fields}
            try:
                tables.replace_leaving(execute, channel.number, seq, type.encode(made))
            except EncodeError as error:
                log.error("objects: %s: event %d is of another type, and never leaves: %s", channel.name, seq, error)
                tables.replace_leaving(execute, channel.number, seq, None)

    def retype(self, execute: Execute, channel: str, type: EventType) -> None:
        """Before anything is sent: what leaves on a channel is of another type than in the life before."""
        known = self._channels.get(channel)
        if known is not None and known.type != type:
            self._open(execute, Notice(channel, type, b""))

    def _align(self, execute: Execute, channel: LeavingChannel) -> None:
        """The next number is behind all that the outlet has had, whatever the state knows of that; in the transaction
        of the turn. An outlet that cannot say it now is asked again with the next number."""
        if channel.floor is None:
            try:
                channel.floor = self._outlets.last(channel.name, channel.type)
            except HeadwaterError as error:
                log.error("objects: %s: it is not known how far it is: %s", channel.name, error)
                return
        if channel.staged < channel.floor:
            self._say_older(channel, "it goes on behind that")
            tables.sent(execute, channel.number, channel.floor)
            channel.staged = channel.floor

    def _say_older(self, channel: LeavingChannel, then: str) -> None:
        """Once: what the state knows, and what has left."""
        if channel.name not in self._older:
            self._older[channel.name] = channel.given, channel.floor or 0
            log.error(
                "objects: %s: expected at most number %d there, by the state, found %d: the state is older than "
                "what has left, and %s; keep the state with its log",
                channel.name,
                channel.given,
                channel.floor,
                then,
            )

    def announce(self, execute: Execute, channel: str, type: EventType) -> None:
        """A channel on which something will leave: it is opened now, so that others find its source."""
        found = self._channels.get(channel)
        if found is None or found.type != type:
            found = self._open(execute, Notice(channel, type, b""))
        self._align(execute, found)
        with self._wake:
            self._behind.add(channel)
            self._wake.notify()

    def tidy(self, execute: Execute) -> None:
        """Write how far channels are where that is worth it, and forget what was sent."""
        if not self._untidy and not self._stopped:
            return
        with self._wake:
            untidy, self._untidy = self._untidy, []
        for channel in self._channels.values() if self._stopped else untidy:
            sent = channel.sent
            if sent > channel.written:
                tables.sent(execute, channel.number, sent)
                channel.written = sent

    def committed(self) -> None:
        """What was written may leave."""
        self._new.clear()
        if not self._unsent:
            return
        for channel, leaving in self._unsent:
            channel.given = leaving.seq
        with self._lock:
            rest = self._unsent if self._ready or self._behind or self._busy else self._heard()
            if rest:
                self._ready.extend(rest)
                if len(self._ready) > HELD:
                    self._behind.update(channel.name for channel, _ in self._ready)
                    self._ready.clear()
                self._wake.notify()
        self._unsent.clear()

    def _heard(self) -> list[tuple[LeavingChannel, Leaving]]:
        """What has to be handed over: from the first on that somebody takes. What nobody takes has left at once, which
        spares a thread its waking. Nothing else is being sent."""
        unsent = self._unsent
        for at, (channel, leaving) in enumerate(unsent):
            if leaving.seq > channel.sent:
                if not channel.opened or not self._outlets.unheard(leaving):
                    return unsent[at:]
                channel.sent = leaving.seq
        return []

    def forget(self) -> None:
        """What was written was not committed, or it is not known whether it was: the file will say."""
        for name in self._new:
            self._channels.pop(name, None)
        self._new.clear()
        self._staged.clear()
        self._unsent.clear()
        self._doubtful = True

    def adopt(self, execute: Execute) -> None:
        """A transaction of the file begins; after one that failed, what is in the file is what was given."""
        if not self._doubtful:
            return
        for number, name, form, sent, given in tables.channels_of(execute):
            channel = self._channels.get(name)
            if channel is None:
                channel = self._channels[name] = LeavingChannel(number, name, unpacked(form), sent, given)
            channel.written, channel.staged = sent, given
            if channel.sent - sent >= SENT_EVERY:
                with self._wake:
                    self._untidy.append(channel)  # that it was written is undone, and nothing else would say so again
            if given > channel.given:
                channel.given = given
                with self._wake:
                    self._behind.add(name)
                    self._wake.notify()
        self._doubtful = False

    # ── sending ──

    def _send_all(self) -> None:
        """Until it is stopped: what is ready, and what has to be read from the file. Channels of changes are opened
        first, so that who waits for a source of theirs finds it."""
        with self._wake:
            self._behind.update(name for name in self._channels if name.startswith(CHANNEL))
        while True:
            with self._wake:
                while not self._ready and not self._due() and not self._stopped:
                    self._busy = False
                    self._wake.notify_all()
                    self._wake.wait(self._again - monotonic() if self._troubled else None)
                if self._stopped:
                    return
                self._busy = True
                ready = list(self._ready)
                self._ready.clear()
                behind, self._behind = self._behind, set()
            for name in sorted(behind):
                self._try(self._channels[name], None)
            self._send(ready)

    def _due(self) -> bool:
        """Whether something is to be read from the file: also what could not be sent a while ago."""
        if self._troubled and monotonic() >= self._again:
            self._behind |= self._troubled
            self._troubled.clear()
        return bool(self._behind)

    def _send(self, ready: list[tuple[LeavingChannel, Leaving]]) -> None:
        """In order; those of one channel that come one after the other, together."""
        at = 0
        while at < len(ready):
            channel, end = ready[at][0], at + 1
            while end < len(ready) and ready[end][0] is channel:
                end += 1
            if channel.name not in self._troubled:  # else it is read from the file later
                self._try(channel, [leaving for _, leaving in ready[at:end]])
            at = end

    def _try(self, channel: LeavingChannel, leaving: list[Leaving] | None) -> None:
        """Send this, or what is in the file. A channel that cannot be sent to is tried again, and holds up no other."""
        try:
            if leaving is None:
                self._catch_up(channel)
            else:
                self._hand_over(channel, leaving)
        except Exception as error:
            if not isinstance(error, ClosedError) and self._trouble.get(channel.name) != str(error):
                log.error("objects: what leaves on %s is sent later: %s", channel.name, error, exc_info=error)
            with self._wake:
                if not self._troubled:
                    self._again = monotonic() + RETRY_SECONDS
                self._troubled.add(channel.name)
            self._trouble[channel.name] = str(error)
        else:
            self._trouble.pop(channel.name, None)

    def _catch_up(self, channel: LeavingChannel) -> None:
        """Send what is in the file."""
        self._be_open(channel)
        while not self._stopped:
            upto = channel.given
            rows = tables.leaving_after(self._tables, channel.number, channel.sent)
            rows = [(seq, record) for seq, record in rows if seq <= upto]
            if not rows:
                return
            self._hand_over(channel, [Leaving(channel.name, seq, record) for seq, record in rows])

    def _hand_over(self, channel: LeavingChannel, leaving: list[Leaving]) -> None:
        self._be_open(channel)
        rest = [each for each in leaving if each.seq > channel.sent]
        if rest:
            self._outlets.send(rest)
            before, channel.sent = channel.sent, rest[-1].seq
            if channel.sent - channel.written >= SENT_EVERY > before - channel.written:
                with self._wake:
                    self._untidy.append(channel)

    def _be_open(self, channel: LeavingChannel) -> None:
        if not channel.opened:
            went = self._outlets.open(channel.name, channel.type, channel.sent, channel.again)
            if went > max(channel.given, channel.floor or 0):  # what has got numbers before that was known is behind
                channel.floor = went
                self._say_older(channel, "what this life has sent before that was known is taken for sent")
            channel.sent = max(channel.sent, went)
            channel.opened = True

    # ── the end ──

    @property
    def doubtful(self) -> bool:
        """Whether a commit has failed, and nobody has looked since what the file has."""
        return self._doubtful

    @property
    def busy(self) -> bool:
        """Whether something is to be sent."""
        return bool(self._ready or self._behind or self._busy or self._troubled)

    def reached(self, channel: str) -> tuple[int, int]:
        """The last number of what was committed for a channel, and of what was handed over."""
        found = self._channels.get(channel)
        return (0, 0) if found is None else (found.given, found.sent)

    def wait(self, timeout: float) -> bool:
        """Until everything that was committed is sent; whether it is."""
        with self._wake:
            return self._wake.wait_for(lambda: not self.busy, timeout)

    def stop(self, write: Callable[[Callable[[Execute], None]], None] | None = None) -> None:
        """Send no more. With `write`, how far channels are is written; else some is sent again next time."""
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(RETRY_SECONDS)
        if write is not None:
            write(self.tidy)

    def report(self) -> dict[str, object]:
        """How far each channel is."""
        return {
            "channels": {
                each.name: {"given": max(each.given, each.sent), "sent": each.sent}
                for each in list(self._channels.values())
            },
            "older": {name: {"known": known, "found": found} for name, (known, found) in list(self._older.items())},
            "unsent": dict(self._trouble),
        }


def _absent(field: Field) -> Any:
    """The raw form of a field that an earlier type did not have."""
    if field.optional:
        return None
    return 0 if isinstance(field.type, Scalar) and field.type.is_number else ""


__all__ = ["HELD", "RETRY_SECONDS", "SENT_EVERY", "LeavingChannel", "Outbox"]
