"""A lock for moments, where almost always nobody else wants it: about a third of the cost of `threading.Lock`.

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
"""

from __future__ import annotations

import logging
import threading

PATIENCE = 3  # times that one is woken in vain
LOOK = 1.0  # seconds after which who waits looks again, should whoever was to tell have been interrupted (Ctrl-C)


LOST = 10  # times that one looks in vain. What is done under a gate takes moments: by then its holder is gone

log = logging.getLogger("headwater")


class Gate:
    """Not re-entrant; usable wherever a `threading.Lock` is."""

    __slots__ = ("_changed", "_given", "_holder", "_hungry", "_lock", "token", "waiters")

    def __init__(self) -> None:
        self.token: list[None] = [None]
        self.waiters = 0
        self._hungry = 0  # of those who wait, how many have been woken in vain too often
        self._given = False  # the token is not in the list, but for whoever waits
        self._holder = 0  # the thread that last took it after waiting
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def queue(self) -> None:
        """Wait for the token and take it. Who calls this calls `undo` if that is interrupted.

        Who comes past just when it is back may be quicker than who was woken, and much quicker over all. But whoever
        was woken in vain a few times is given it by who puts it back."""
        me, tries, vain = threading.get_ident(), 0, 0
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
                        vain = 0 if self._changed.wait(LOOK) else vain + 1
                        if vain >= LOST:
                            log.error("a lock was not laid down for %d s: it was lost, most likely to Ctrl-C", LOST)
                            self._holder = me
                            return
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

    def undo(self) -> None:
        """`queue` was interrupted, or what comes just after it: put the token back if it was taken."""
        if self._holder == threading.get_ident():
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
        return self

    def __exit__(self, *exc: object) -> None:
        self.token.append(None)
        if self.waiters:
            self.wake()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As of any lock; a time limit is not offered."""
        if not blocking:
            try:
                self.token.pop()
            except IndexError:
                return False
            except BaseException:
                self.token.append(None)
                raise
            return True
        self.__enter__()
        return True

    def release(self) -> None:
        self.__exit__()

    def locked(self) -> bool:
        return not self.token
