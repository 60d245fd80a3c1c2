"""Interests, patterns and triggers by name: what `node.library` takes and gives."""

from headwater.extras import require

require("federation", "headwater.library")

from headwater.federation.library.library import Library  # noqa: E402
from headwater.federation.library.upgrading import Upgraded  # noqa: E402
from headwater.services.library.comparison import Comparison, compare  # noqa: E402
from headwater.services.library.entry import LibraryEntry  # noqa: E402
from headwater.services.library.trigger_form import TriggerForm  # noqa: E402

__all__ = ["Comparison", "Library", "LibraryEntry", "TriggerForm", "Upgraded", "compare"]
