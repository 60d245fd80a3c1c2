"""Names that are owned: domains, who serves them, who has sources of a name, and subscriptions by name."""

from headwater.extras import require

require("federation", "headwater.names")

from headwater.federation.naming.name_change import NameChange  # noqa: E402
from headwater.federation.naming.named_subscription import NamedSubscription  # noqa: E402
from headwater.federation.naming.names import Names  # noqa: E402
from headwater.federation.naming.settings import NameSettings, Served  # noqa: E402
from headwater.federation.naming.signatures import make_owner_key, read_owner  # noqa: E402
from headwater.federation.naming.watch import NameWatch  # noqa: E402
from headwater.services.naming.address import NodeAddress  # noqa: E402
from headwater.services.naming.answer_cache import Answer  # noqa: E402
from headwater.services.naming.resolver import NameUnresolved, Step  # noqa: E402
from headwater.services.naming.zone import Delegation  # noqa: E402

__all__ = [
    "Answer",
    "Delegation",
    "NameChange",
    "NameSettings",
    "NameUnresolved",
    "NameWatch",
    "NamedSubscription",
    "Names",
    "NodeAddress",
    "Served",
    "Step",
    "make_owner_key",
    "read_owner",
]
