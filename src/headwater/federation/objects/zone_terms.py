"""The times by which triggers over several nodes go, from the settings of a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.objects.zones.coordinator import SECOND, Terms

if TYPE_CHECKING:
    from headwater.federation.network import Network

RETRIES = 5  # in a lease: how often a question is put


def terms_of(network: Network) -> Terms:
    """Of whom nothing is heard for a lease, nothing is known; the error of clocks is what is stated."""
    lease = int(network.lease * SECOND)
    return Terms(lease=lease, retry=lease // RETRIES, error=int(network.clock_error * SECOND))


__all__ = ["RETRIES", "terms_of"]
