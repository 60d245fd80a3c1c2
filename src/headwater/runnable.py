"""What can be installed at a source or a node and run there: a `Runnable`. Interests are the first kind.

    Runnable    what is asked for: it can be compared, costed, sent and started; it has no state itself
    Runner      one run of it, with its state: at one source, or at a node
    Snapshot    that state at an exact point, as bytes: what a run goes on from, in another process or execution

A kind has a name, which travels with each wish (`Wish.kind`); a node refuses kinds that it does not know, with its
version. `register` makes a kind known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import ExecutionError, SerialError
from headwater.formats import SNAPSHOT
from headwater.version import VERSION

if TYPE_CHECKING:
    from headwater.types import EventType

INTEREST = "interest"  # the first kind; on the wire, where it is nearly all there is, an empty one
MAX_POSITIONS = 100_000  # sources in a snapshot


class Clock(Protocol):
    """The time of a node, in microseconds since 1970."""

    def time(self) -> int:
        """Microseconds since 1970, UTC."""
        ...


class Runnable(Protocol):
    """What someone wants to have run where events are."""

    kind: ClassVar[str]

    @property
    def type(self) -> EventType:
        """Of the events that it takes."""
        ...

    @property
    def output(self) -> EventType | None:
        """Of the events that it makes; None if it passes those that it takes."""
        ...

    @property
    def fingerprint(self) -> bytes:
        """Equal for those that do the same, on every machine."""
        ...

    @property
    def cost(self) -> Any:
        """What an event costs (`estimated`, in native operations), and the memory that a run takes."""
        ...

    @property
    def stateful(self) -> bool:
        """Whether what it does with an event depends on those before."""
        ...

    @property
    def partition(self) -> tuple[str, ...]:
        """The expressions by whose values its state is kept apart; none: there is one state for each source."""
        ...

    def dumps(self) -> bytes:
        """What travels between nodes; its parameters travel beside it."""
        ...

    def start(self, clock: Clock | None = None) -> Runner:
        """A run of it, with a state of its own; `clock` is for what has to act when nothing comes."""
        ...


class Runner(Protocol):
    """A run. It is fed by one thread at a time, in the order of each source."""

    def run(self, record: Any, meta: Any = None) -> Any:
        """One event: its outcome."""
        ...

    def batch(self, batch: Any, *, meta: Mapping[str, Any] | None = None) -> Any:
        """The rows of a RecordBatch, in order."""
        ...

    def snapshot(self, positions: Mapping[str, int]) -> bytes:
        """Its state, with the last event of each source that is in it, which who feeds it knows."""
        ...

    def restore(self, snapshot: bytes) -> dict[str, int]:
        """Go on from a snapshot of an equal Runnable: the positions after which events are to come."""
        ...


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """As it is kept, and as it travels. `state` is for the kind to read."""

    format: int
    kind: str
    fingerprint: bytes
    positions: dict[str, int]
    state: bytes

    def dumps(self) -> bytes:
        """As bytes, which `restore` takes."""
        return _ENCODER.encode(self)


def snapshot(kind: str, fingerprint: bytes, positions: Mapping[str, int], state: bytes) -> bytes:
    """The bytes of a snapshot: what kind of runnable, which program, up to which event of each source, and its
    state."""
    return Snapshot(SNAPSHOT, kind, fingerprint, dict(positions), state).dumps()


def read_snapshot(data: bytes, kind: str, fingerprint: bytes) -> Snapshot:
    """A snapshot of that kind and fingerprint; ExecutionError if it is none. The bytes may come from anyone."""
    try:
        format = _FORMAT.decode(data)[0]
        if format != SNAPSHOT:
            raise ExecutionError(
                f"snapshot: expected format {SNAPSHOT}, found {format!r}, of another version of Headwater than "
                f"{VERSION}; begin anew, or use that one"
            )
        found = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, IndexError) as error:
        raise ExecutionError(f"snapshot: expected one, found something else: {error}") from None
    if found.kind != kind or found.fingerprint != fingerprint:
        raise ExecutionError(
            f"snapshot: expected the state of {kind} {fingerprint.hex()[:12]}, found that of {found.kind} "
            f"{found.fingerprint.hex()[:12]}; a run goes on from its own state only"
        )
    if len(found.positions) > MAX_POSITIONS or any(seq < 0 for seq in found.positions.values()):
        raise ExecutionError("snapshot: expected sequence numbers by source, found others, or too many")
    return found


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgpack_decoder(Snapshot)
_FORMAT = msgpack_decoder(list[Any])


# ── kinds ──

Loads = Callable[[bytes, Mapping[str, Any]], Any]
_KINDS: dict[str, Loads] = {}


def register(kind: str, loads: Loads) -> None:
    """Have runnables of a kind read by a function of what they are as bytes, and their parameters."""
    if not kind or _KINDS.setdefault(kind, loads) is not loads:
        raise SerialError(f"kind {kind!r}: expected one that is not there yet, found it registered")


def loads(kind: str, data: bytes, params: Mapping[str, Any]) -> Any:
    """What someone sent; it is checked as one's own is. SerialError if its kind is not known here."""
    if kind not in _KINDS:
        raise SerialError(
            f"expected one of the kinds that Headwater {VERSION} runs, which are {', '.join(sorted(_KINDS))}, found "
            f"{kind!r}; it needs a newer version"
        )
    return _KINDS[kind](data, params)


__all__ = ["INTEREST", "Clock", "Runnable", "Runner", "Snapshot", "loads", "read_snapshot", "register", "snapshot"]
