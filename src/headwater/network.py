"""How a node takes part in a federation, as values for `Node(network=...)`; gateways, multicast groups, sequencers."""

from headwater.extras import require

require("federation", "headwater.network")

from headwater.federation.address_map import AddressMap, FixedGroups, HashedGroups  # noqa: E402
from headwater.federation.gateway.gateway import Gateway  # noqa: E402
from headwater.federation.network import Budget, Network  # noqa: E402
from headwater.federation.order.sequencer import Sequencer  # noqa: E402

__all__ = ["AddressMap", "Budget", "FixedGroups", "Gateway", "HashedGroups", "Network", "Sequencer"]
