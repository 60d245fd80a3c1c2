"""What a sequencer needs of the federation that its node is part of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.federation.arrive.paths import Origins
    from headwater.federation.context import Context
    from headwater.federation.demand.demand import Demands
    from headwater.federation.order.election import Ballots
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.table import Peers


@dataclass(frozen=True, eq=False, slots=True)
class Federated:
    """`in_force`: whether what is wanted of channels is, at all sources that are known; `look_round`: once others can
    know of a source, hear from everyone what they have."""

    context: Context
    peers: Peers
    ballots: Ballots
    dialogue: Dialogue
    demands: Demands
    origins: Origins
    in_force: Callable[[list[Channel]], bool]
    look_round: Callable[[Source], None]


__all__ = ["Federated"]
