"""Names of a package that are imported when they are first asked for.

Who needs one module of a package, as Spark's workers do, does not load all of it. A package keeps a table of where its
names are from, and has

    if not TYPE_CHECKING:
        __getattr__ = late_names(__name__, _MODULES, globals())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def late_names(package: str, modules: Mapping[str, str], found: dict[str, Any]) -> Callable[[str], Any]:
    """What finds a name of the package: one of `modules`, which has the names of each, or a module of its own. What was
    found goes into `found`, where the next one who asks finds it at once."""
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def home_of(name: str) -> Any:
        if name in homes:
            found[name] = getattr(import_module(homes[name]), name)
            return found[name]
        if name.startswith("_") or find_spec(f"{package}.{name}") is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return home_of


__all__ = ["late_names"]
