"""Domains: the parts of the tree of names that somebody owns.

A domain is written as the beginning of the names in it: `ie.tcd` has `ie.tcd.door` and `ie.tcd.cs.ActiveBadge`, unless
it has given `ie.tcd.cs` to somebody else. The root, which has all names, is `.`; a dot at the end may be left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.channel.names import check_name
from headwater.errors import ChannelError, ConfigProblem

ROOT = "."


def check_domain(text: object) -> str:
    """The domain of a text, without the dot at its end; ChannelError if it can be none."""
    if text == ROOT:
        return ROOT
    return check_name(text.removesuffix(".") if isinstance(text, str) else text)


def domain_problem(place: str, text: object) -> ConfigProblem | None:
    """What is wrong with a text that is to be a domain, if anything."""
    try:
        check_domain(text)
    except ChannelError as error:
        return ConfigProblem(place, f"a domain such as 'ie.tcd', or '{ROOT}' for the root", repr(text), str(error))
    return None


def is_in(name: str, domain: str) -> bool:
    """Whether a name, or another domain, is below a domain; no domain is below itself."""
    return name != ROOT and (domain == ROOT or name.startswith(f"{domain}."))


def enclosing(name: str) -> Iterator[str]:
    """The domains that a name may be in, the smallest first: the last is the root."""
    while "." in name:
        name = name.rpartition(".")[0]
        if name:
            yield name
    yield ROOT


def depth(domain: str) -> int:
    """How many steps below the root a domain is."""
    return 0 if domain == ROOT else domain.count(".") + 1


def changes_channel(domain: str) -> str:
    """The channel on which the servers of a domain tell what becomes of its names."""
    return "names" if domain == ROOT else f"names.{domain}"


__all__ = ["ROOT", "changes_channel", "check_domain", "depth", "domain_problem", "enclosing", "is_in"]
