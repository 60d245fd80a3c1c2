"""A lock for moments, where almost always nobody else wants it: taken in place, a fifth of the cost of `with Lock()`.

Why it is not `threading.Lock`: a publish takes one of these for its source and one for each queue. With those of
`threading` in both places, by `with` (the one way that Ctrl-C cannot come between), the same publish was measured at
1.16 times with a filter that passes, 1.20 with one that rejects, 1.14 to two handlers. `service.py gate` of the
benchmarks measures the locks themselves (27 ns in place, 70 by acquire and release, 150 by `with`). And machine code,
which cannot look into a lock of Python's, sees whether the list is empty.

Taking the one token out of a list, and putting it back, are single operations that no other thread can divide. Only who
finds the list empty waits, on a condition. Code where every nanosecond counts may do the same in place:

    try:
        gate.token.pop()
    except IndexError:
        try:
            gate.queue()                # someone else has it: wait
        except BaseException:
            gate.undo()
            raise
    except BaseException:
        gate.token.append(None)         # interrupted (Ctrl-C) just after it was taken
        raise
    try:
        ...
    finally:
        gate.token.append(None)
        if gate.waiters:
            gate.wake()

Nobody enters without the token, however long that takes: there is only one. Who waits looks again every
`RECHECK_SECONDS`, since the word that it is back can be lost to Ctrl-C. The token itself can be lost only by a `with`
statement, if Ctrl-C comes in the moment in which it is left; so who takes it in that way is noted (`_owner`) until just
before it is back. If that thread has ended, or if it waits here itself and is in no `with` statement, the token is gone
for good, and made anew. Else it is waited for, and said where that thread is.

Under a gate only that is done which takes moments: no file is written or read, no history is judged, no batch of any
size is taken in whole.
"""

from __future__ import annotations

import dis
import logging
import sys
import threading
import traceback
from threading import get_ident
from types import FrameType
from typing import Any

PATIENCE = 3  # times that one is woken in vain
RECHECK_SECONDS = 1.0  # after which who waits looks again, should whoever was to tell have been interrupted (Ctrl-C)
RECHECKS_PER_WARNING = 10  # looks in vain after which it is said who is waited for

log = logging.getLogger("headwater")


class Gate:
    """Not re-entrant; usable wherever a `threading.Lock` is."""

    __slots__ = ("_changed", "_given", "_holder", "_hungry", "_lock", "_owner", "token", "waiters")

    def __init__(self) -> None:
        self.token: list[None] = [None]
        self.waiters = 0
        self._hungry = 0  # of those who wait, how many have been woken in vain too often
        self._given = False  # the token is not in the list, but for whoever waits
        self._holder = 0  # the thread that last took it after waiting
        self._owner = 0  # the thread that has it by a `with` statement; 0 if nobody has, or in another way
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def queue(self) -> None:
        """Wait for the token and take it. Who calls this calls `undo` if that is interrupted.

        Who comes past just when it is back may be quicker than who was woken, and much quicker over all. But whoever
        was woken in vain a few times is given it by who puts it back."""
        me, tries, vain = get_ident(), 0, 0
        if self._holder == me:
            self._holder = 0
        with self._lock:
            self.waiters += 1
            try:
                while not self._given:
                    try:
                        self.token.pop()
                    except IndexError:
                        tries += 1
                        self._hungry += tries == PATIENCE
                        # Whoever puts it back now sees `waiters`, and must first wait for this lock.
                        if self._changed.wait(RECHECK_SECONDS):
                            continue
                        vain += 1
                        if not self.token and not self._given and self._lost(me):
                            log.error("a lock was lost, most likely to Ctrl-C, and is made anew")
                            self._owner, self._holder = 0, me
                            return
                        if vain % RECHECKS_PER_WARNING == 0:
                            log.error("waiting for a lock since %g s: %s", vain * RECHECK_SECONDS, self._whose())
                    except BaseException:
                        self.token.append(None)
                        raise
                    else:
                        self._holder = me
                        return
                self._given, self._holder = False, me
            finally:
                self.waiters -= 1
                self._hungry -= tries >= PATIENCE
                if self._given and not self.waiters:  # whom it was for was interrupted
                    self._given = False
                    self.token.append(None)

    def _lost(self, me: int) -> bool:
        """Whether who has the token can never put it back."""
        owner = self._owner
        if owner != me:
            return owner != 0 and owner not in sys._current_frames()
        frame = sys._getframe(2)  # who called `queue`
        while frame.f_code in _ENTERING:
            frame = frame.f_back  # type: ignore[assignment]
        while (frame := frame.f_back) is not None:  # type: ignore[assignment]
            if _in_with(frame) and (_ours(frame) or any(each is self for each in frame.f_locals.values())):
                raise RuntimeError(
                    "a lock is wanted by the thread that has it: by a signal handler or a finalizer that uses the "
                    "service while that is at work, or after Ctrl-C; use the service from another thread there"
                )
        return True

    def _whose(self) -> str:
        """For people: who has the token, and what it is doing."""
        owner = self._owner
        frame = sys._current_frames().get(owner)
        if frame is None:
            return "who has it is not known"
        name = next((each.name for each in threading.enumerate() if each.ident == owner), str(owner))
        return f"thread {name} has it, at\n{''.join(traceback.format_stack(frame)).rstrip()}"

    def undo(self) -> None:
        """`queue` was interrupted, or what comes just after it: put the token back if it was taken."""
        if self._holder == get_ident():
            self._holder = 0
            self.token.append(None)

    def wake(self) -> None:
        """The token is back: let one of those who wait look."""
        with self._lock:
            if self._hungry and self.token:
                try:
                    self.token.pop()
                except IndexError:
                    pass
                except BaseException:
                    self.token.append(None)
                    raise
                else:
                    self._given = True
            self._changed.notify()

    def __enter__(self) -> Gate:
        me = get_ident()  # before it is taken: after a call there may be an interrupt
        try:
            self.token.pop()
        except IndexError:
            try:
                self.queue()
            except BaseException:
                self.undo()
                raise
        except BaseException:
            self.token.append(None)
            raise
        self._owner = me
        return self

    def __exit__(self, *exc: object) -> None:
        self._owner = 0
        self.token.append(None)
        if self.waiters:
            self.wake()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As of any lock; a time limit is not offered."""
        if blocking:
            self.__enter__()
            return True
        me = get_ident()
        try:
            self.token.pop()
        except IndexError:
            return False
        except BaseException:
            self.token.append(None)
            raise
        self._owner = me
        return True

    def release(self) -> None:
        self.__exit__()

    def locked(self) -> bool:
        return not self.token


def _ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("headwater.")


def _in_with(frame: FrameType) -> bool:
    """Whether a function is inside a `with` statement just now, and so may have a gate."""
    code = dis.Bytecode(frame.f_code)
    entries: Any = code.exception_entries  # type: ignore[attr-defined]
    handlers = {entry.target for entry in entries if entry.start <= frame.f_lasti < entry.end}
    ways_out = [step.offset - 2 for step in code if step.opname == "WITH_EXCEPT_START"]
    return not handlers.isdisjoint(ways_out)


_ENTERING = {Gate.__enter__.__code__, Gate.acquire.__code__, Gate.queue.__code__}
