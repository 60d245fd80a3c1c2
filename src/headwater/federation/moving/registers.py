"""The registers of moves of a node: of durable sinks in its state, of others in memory, for as long as they last."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from headwater.errors import SubscriptionError
from headwater.services.moving.register import MoveRegister
from headwater.store import NodeState

if TYPE_CHECKING:
    from headwater.channel.node import Node


class Registers:
    """Of one node; each is opened when it is first needed. Threads may share it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._opening = threading.Lock()
        self._durable: MoveRegister | None = None
        self._fleeting: MoveRegister | None = None
        self._memory: NodeState | None = None

    def of(self, *, durable: bool) -> MoveRegister:
        """That of sinks of a kind."""
        return self.durable if durable else self.fleeting

    @property
    def durable(self) -> MoveRegister:
        with self._opening:
            if self._durable is None:
                state = self._node.state
                if state is None:
                    raise SubscriptionError(
                        f"node {self._node.name!r}: expected a node with state, for what moves is kept there, found "
                        'one without; give it a file, Node(state="lab.state"), or ":memory:"'
                    )
                self._durable = MoveRegister(state)
            return self._durable

    @property
    def fleeting(self) -> MoveRegister:
        with self._opening:
            if self._fleeting is None:
                self._memory = NodeState(":memory:")
                self._fleeting = MoveRegister(self._memory)
            return self._fleeting

    def find(self, id: bytes) -> tuple[MoveRegister, tuple[str, list[str]]]:
        """Where a move from here is, and its terms; SubscriptionError if there is none."""
        opened = [] if self._fleeting is None else [self._fleeting]
        for register in opened if self._node.state is None else [self.durable, *opened]:
            terms = register.terms(id)
            if terms is not None:
                return register, terms
        raise SubscriptionError("the token was never made here, or is long over")

    def departed(self, channel: str) -> list[str]:
        """Durable sinks of a channel that are on their way, or gone."""
        return [] if self._node.state is None else self.durable.departed(channel)

    def report(self) -> dict[str, Any] | None:
        """Sinks that are on their way, and where others have gone; None if there was never any."""
        found = [each.report() for each in (self._durable, self._fleeting) if each is not None]
        if not found:
            return None
        return {
            "on their way": [name for each in found for name in each["on their way"]],
            "moved": {name: who for each in found for name, who in each["moved"].items()},
        }

    def close(self) -> None:
        """What is in memory is forgotten."""
        with self._opening:
            memory, self._memory, self._fleeting = self._memory, None, None
        if memory is not None:
            memory.close()


__all__ = ["Registers"]
