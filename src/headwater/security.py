"""Who may do what in a federation: certificates, users and rules, as values for `Node(security=...)`."""

from headwater.extras import require

require("federation", "headwater.security")

from headwater.federation.security.policy import Allow, Deny, Policy, Restrict  # noqa: E402
from headwater.federation.security.rules import Rule  # noqa: E402
from headwater.federation.security.settings import Security  # noqa: E402
from headwater.federation.security.tokens import Issuer  # noqa: E402
from headwater.federation.security.user_proof import AsUser  # noqa: E402

__all__ = ["Allow", "AsUser", "Deny", "Issuer", "Policy", "Restrict", "Rule", "Security"]
