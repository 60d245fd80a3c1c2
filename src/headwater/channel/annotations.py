"""Types for type checkers: of which events a channel, a source and a subscription are.

`node.channel(name, Badge)` is a `Channel[Badge]`, its sources take a Badge and its subscriptions give one. Where no
class says what events are (a declaration as text, an Arrow schema, a pattern of channels), they are `Any`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Literal, Protocol, Self, TypedDict

from headwater.types import Event

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from headwater.channel.options.config import Dispatch, Queue
    from headwater.channel.options.delivery import Delivery, Order
    from headwater.channel.options.rate import Rate
    from headwater.channel.options.subscribe import Claimant

    E = TypeVar("E", default=Any)
    E_co = TypeVar("E_co", default=Any, covariant=True)
    E_contra = TypeVar("E_contra", default=Any, contravariant=True)
    F = TypeVar("F", bound=Event | bytes)
else:  # a default is for type checkers only, before Python 3.13
    from typing import TypeVar

    E = TypeVar("E")
    E_co = TypeVar("E_co", covariant=True)
    E_contra = TypeVar("E_contra", contravariant=True)
    F = TypeVar("F")


# An interest as it is written: a predicate, E-Code, or a Python function of the event and of its parameters.
Judged = str | Callable[Concatenate[E, ...], Any]
Where = Judged[E] | None


def shown(value: object, names: frozenset[str]) -> list[str]:
    """For `__dir__`: of what has no underscore only these, since rooms within share the rest."""
    return [name for name in object.__dir__(value) if name.startswith("_") or name in names]


class HandOver(TypedDict, total=False):
    """The options of a subscription that do not change what its events are."""

    params: Mapping[str, object] | None
    name: str | None
    priority: Any
    lifetime: Any
    queue: Queue | int | None
    dispatch: Dispatch | str | None
    before: Callable[..., Any] | None
    after: Callable[..., Any] | None
    failures: int | None
    delivery: Delivery | str | None
    order: Order | None
    zones: str | Iterable[str] | None
    history: int | Literal["all"] | None
    rate: Rate | float | None
    as_: Claimant | None


class Shared(HandOver, total=False):
    """The same of a subscription to one channel, which may share its events with others."""

    group: str | None
    group_key: str | None


class Answers(TypedDict, total=False):
    """The options of who answers questions."""

    params: Mapping[str, object] | None
    queue: Queue | int | None
    dispatch: Dispatch | str | None
    priority: Any


class Answering(Protocol):
    """A handler that answers, while it is not closed."""

    name: str

    def close(self) -> None:
        """Answer no more questions; those that have come are answered first."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...


__all__ = ["Answering", "Answers", "E", "E_co", "E_contra", "F", "HandOver", "Judged", "Shared", "Where", "shown"]
