"""By which name it is kept how far a sink is with a source that is logged."""

from __future__ import annotations

from urllib.parse import quote

LOGGED = "log/"  # what keys of sources begin with that are logged


def logs_of(node: str) -> str:
    """What keys of all sources begin with that a node logs."""
    return f"{LOGGED}{quote(node, safe='')}/"


def prefix_of(node: str, log: str) -> str:
    """What keys of a log's sources begin with. The node's name is in it, which others cannot take with certificates."""
    return f"{logs_of(node)}{log}/"


def key_of(node: str, log: str, source: str) -> str:
    """A source for good, whatever process or key its node has."""
    return prefix_of(node, log) + quote(source, safe="")


__all__ = ["LOGGED", "key_of", "logs_of", "prefix_of"]
