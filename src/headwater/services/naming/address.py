"""Where a node is: its id, its federation, and where one gets into that."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from headwater.decoders import convert

MOST_ENDPOINTS = 8
_ID = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\.[0-9a-f]{32}\Z"
NodeId = Annotated[str, Meta(pattern=_ID)]
Federation = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,200}\Z")]
Endpoint = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x20\x7f]+\Z")]
_WRITTEN = re.compile(r"(?P<node>[^@\s]+)@(?P<federation>[^=\s]+)=(?P<endpoints>\S+)\Z")
WRITTEN_FORM = "NODE@FEDERATION=ENDPOINT, as in 'gate.1f2e…@tcd=tls/gate.tcd.ie:7447' (several endpoints with commas)"


class NodeAddress(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node: `node` is its id, which says which key it must have. `endpoints` lead into its federation, to the node
    itself or to one that passes on to it; none: it is found by those who are in its federation."""

    node: NodeId
    federation: Federation
    endpoints: Annotated[tuple[Endpoint, ...], Meta(max_length=MOST_ENDPOINTS)] = ()

    @property
    def name(self) -> str:
        """The node's name, without its key."""
        return self.node.rpartition(".")[0]

    def __str__(self) -> str:
        endpoints = f"={','.join(self.endpoints)}" if self.endpoints else ""
        return f"{self.node}@{self.federation}{endpoints}"

    @property
    def brief(self) -> str:
        """For people: the name and the federation."""
        return f"{self.name}@{self.federation}"


def read_address(text: str) -> NodeAddress:
    """The address that is written like this; ValueError, with how it is written, if it is none."""
    found = _WRITTEN.match(text)
    if found is None:
        raise ValueError(f"expected {WRITTEN_FORM}")
    given = [found["node"], found["federation"], [each for each in found["endpoints"].split(",") if each]]
    try:
        return convert(given, NodeAddress)
    except msgspec.ValidationError as error:
        raise ValueError(f"expected {WRITTEN_FORM}: {error}") from None


__all__ = ["MOST_ENDPOINTS", "Endpoint", "Federation", "NodeAddress", "NodeId", "read_address"]
