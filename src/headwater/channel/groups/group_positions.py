"""How far durable groups are with the sources of a node, as its state has it: also where no member is there, and of
sources that leave for another node or come from one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headwater.channel.queues.position_keys import key_of

if TYPE_CHECKING:
    from headwater.channel.contract import NodeContract
    from headwater.store import NodeState

BEGUN = ""  # the key under which it is kept that there is such a group


class GroupPosition(NamedTuple):
    """Of a group and a source: all events up to `done` are, and up to `handed` somebody may have had them."""

    group: str
    done: int
    handed: int


class GroupPositions:
    """Of the groups of one channel."""

    def __init__(self, state: NodeState, node: str, log_id: str, channel: str) -> None:
        self._state, self._node, self._log_id, self._channel = state, node, log_id, channel

    @classmethod
    def at(cls, node: NodeContract, channel: str) -> GroupPositions | None:
        """None at a node that keeps none."""
        if node.state is None or node._logs is None or not node._logs.wants(channel):
            return None
        return cls(node.state, node.name, node._logs.id_of(channel), channel)

    def label(self, group: str) -> str:
        """The name of a group among the sinks of the state."""
        return f"group {group} of {self._channel}"

    def key(self, source: str) -> str:
        """That of a source, in the log of this node."""
        return key_of(self._node, self._log_id, source)

    def away(self, left: Mapping[str, int]) -> dict[str, int]:
        """What is kept of sources that are elsewhere when a group begins, with how often they had moved when they left:
        what they had published by then is not the group's."""
        return {f"left {self.key(source)}": term for source, term in left.items()}

    def groups(self) -> list[str]:
        """Those that have begun here."""
        before, behind = self.label("\0").split("\0")
        labels = [each for each in self._state.sinks() if each.startswith(before) and each.endswith(behind)]
        return [each[len(before) : -len(behind)] for each in labels if BEGUN in self._state.positions(each)]

    def of(self, group: str) -> tuple[dict[str, int], dict[str, int]]:
        """By the keys of sources, what is done, and what somebody may have had."""
        return self._state.positions(self.label(group)), self._state.handed(self.label(group))

    def of_source(self, source: str, began: int, left: tuple[int, int] | None = None) -> list[GroupPosition]:
        """Of all groups; `began` is the event of the source after which it is at this node. `left`: how often it had
        moved when it left, and its last event before that."""
        found, key = [], self.key(source)
        away, upto = ({}, 0) if left is None else (self.away({source: left[0]}), left[1])
        for group in self.groups():
            done, handed = self.of(group)
            since = bool(away) and away.items() <= done.items()  # it has begun since
            found.append(GroupPosition(group, *where(done, handed, key, upto if since else began)))
        return found

    def take_over(
        self, source: str, told: Iterable[GroupPosition], ends: Mapping[str, int], left: Mapping[str, int]
    ) -> None:
        """A source comes from another node, where groups were so far with it. A group that has not begun here does so
        now, where other sources are: `ends` has their last events, and `left` those that are elsewhere."""
        key, others = self.key(source), {self.key(name): last for name, last in ends.items() if name != source}
        others |= self.away({name: term for name, term in left.items() if name != source})
        for each in told:
            label = self.label(each.group)
            begun = BEGUN in self._state.positions(label)
            self._state.commit_all(label, {key: each.done} if begun else {BEGUN: 1, **others, key: each.done})
            if each.handed > each.done:
                self._state.hand_all(label, {key: each.handed})


def where(positions: Mapping[str, int], handed: Mapping[str, int], key: str, began: int) -> tuple[int, int]:
    """What is done of a source, and what somebody may have had; `began` where nothing is known of it."""
    done = positions.get(key, 0 if key in handed else began)
    return done, max(done, handed.get(key, 0))


__all__ = ["BEGUN", "GroupPosition", "GroupPositions", "where"]
