"""Policies: which part of a channel somebody gets, as values for `node.policies` and `Security(policies=...)`."""

from headwater.extras import require

require("federation", "headwater.policy")

from headwater.federation.security.policies import Policies  # noqa: E402
from headwater.services.policy.book import shown  # noqa: E402
from headwater.services.policy.channel_policy import ChannelPolicy, Clause  # noqa: E402
from headwater.services.policy.identity import Identity  # noqa: E402
from headwater.services.policy.location import Location  # noqa: E402

__all__ = ["ChannelPolicy", "Clause", "Identity", "Location", "Policies", "shown"]
