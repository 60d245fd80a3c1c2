"""Where it is kept how far durable subscriptions are: in their node's state, or in the database of their handler."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from time import time_ns
from typing import Any, Protocol

from headwater.errors import StoreError
from headwater.store import NodeState, WithinConnection

Points = dict[str, int]  # by position key, a sequence number


class Keeper(Protocol):
    """Where positions are kept."""

    undoes: bool  # what the handler has done is undone if the position cannot be kept, so it is to be done again

    def positions(self) -> Points: ...

    def handed(self) -> Points:
        """Up to where events are known to have been handed over, whether they were done or not."""
        ...

    def unsure(self, known: Iterable[str]) -> set[str] | None:
        """Of which sources, of those that are known, the first event after that may have been handed over as well, by a
        process that was killed; None where nothing is written of it: of any."""
        ...

    def open(self, *, over: bool) -> None:
        """From now on this process hands events over; it is to be known if it is killed. `over`: the subscription had
        ended."""

    def begin(self, points: Points, noted: Points) -> None:
        """Events up to `points` are about to be handed over; that those up to `noted` were, or are about to be, must be
        known before."""

    def commit(self, points: Points, *, known: bool) -> None:
        """They are done; `known`: what was forgotten meanwhile stays so."""

    def failed(self, points: Points) -> Points:
        """They are not, the handler raised; where the position is all the same."""
        ...

    def end(self, handed: Points, unsure: Collection[str] | None, *, orderly: bool) -> None:
        """Nothing more is handed over, after these; `orderly`: all that was is written, and only of these sources
        (None: of those that were) the next event may have been."""


class InState:
    """In the node's state."""

    undoes = False

    def __init__(self, state: NodeState, sink: str) -> None:
        self._state, self._sink, self._life = state, sink, time_ns()

    def positions(self) -> Points:
        return self._state.positions(self._sink)

    def handed(self) -> Points:
        return self._state.handed(self._sink)

    def unsure(self, known: Iterable[str]) -> set[str]:
        return set(known) if self._state.is_open(self._sink) else self._state.unsure(self._sink)

    def open(self, *, over: bool) -> None:
        self._state.open_sink(self._sink, self._life, over=over)

    def begin(self, points: Points, noted: Points) -> None:
        if noted:
            self._state.hand_all(self._sink, noted)

    def commit(self, points: Points, *, known: bool) -> None:
        if points:
            self._state.commit_all(self._sink, points, known=known)

    def failed(self, points: Points) -> Points:
        if points:
            self._state.hand_all(self._sink, points)
        return {}

    def end(self, handed: Points, unsure: Collection[str] | None, *, orderly: bool) -> None:
        try:
            if handed:
                self._state.hand_all(self._sink, handed, known=True)
        except StoreError:
            self._state.remember_handed(self._sink, handed)
            raise
        if orderly:
            self._state.close_sink(self._sink, self._life, unsure)


class InTransaction:
    """In the handler's own transaction, which there is for every event, also of sources without a position."""

    undoes = True

    def __init__(self, connection: Any, sink: str) -> None:
        self._within = WithinConnection(connection, sink)

    def positions(self) -> Points:
        return self._within.positions()

    def handed(self) -> Points:
        return {}

    def unsure(self, known: Iterable[str]) -> None:
        """Nothing is written of what was handed over and undone."""

    def open(self, *, over: bool) -> None:
        """A transaction is there, or is not."""

    def begin(self, points: Points, noted: Points) -> None:
        self._within.begin(points)

    def commit(self, points: Points, *, known: bool) -> None:
        self._within.commit(points)

    def failed(self, points: Points) -> Points:
        self._within.rollback()
        return self._within.positions()  # the handler may have committed by itself before it raised

    def end(self, handed: Points, unsure: Collection[str] | None, *, orderly: bool) -> None:
        """The transaction was the last."""


__all__ = ["InState", "InTransaction", "Keeper", "Points"]
