"""What the parts of a federation share and none of them owns: who this node is, its settings, and its scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.routing.wiring import Wiring
    from headwater.federation.failures import Failures
    from headwater.federation.network import Network
    from headwater.federation.scheduler import Scheduler
    from headwater.federation.security.decisions import Decisions
    from headwater.federation.security.keyring import Keyring
    from headwater.federation.security.offences import Offences
    from headwater.federation.security.quotas import Quotas
    from headwater.federation.security.settings import Security


@dataclass(eq=False, slots=True)
class Context:
    """Of one node. It knows no other part: what a part needs beside this, it is given by name.

    `offences` counts what others have done wrong, `failures` what this node fails to do and tries again. `quotas`
    is what other nodes may have of this one. `closing`: nothing new is begun; `closed`: nothing is expected of the
    network any more."""

    node: Node  # its channels, sources and sinks
    network: Network
    keyring: Keyring
    scheduler: Scheduler
    offences: Offences
    failures: Failures
    decisions: Decisions  # who gets what of this node's channels
    quotas: Quotas
    closing: bool = False
    closed: bool = False

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def id(self) -> str:
        """In the federation: the name, and the beginning of its key's fingerprint."""
        return self.keyring.id

    @property
    def incarnation(self) -> int:
        """Which run of the node this is."""
        return self.keyring.incarnation

    @property
    def security(self) -> Security:
        return self.network.security

    @property
    def wiring(self) -> Wiring:
        """Who gets which source's events here; its lock is taken before any other of the federation."""
        return self.node._wiring


__all__ = ["Context"]
