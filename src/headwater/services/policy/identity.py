"""Who asks: a user on a device at a node.

    Identity(user="ann", groups=("security",), device="ann-phone", device_kind="phone", node="lab.1f2e...")

An identity is made by the node that is asked, from what the connection has proven, and is carried with each wish from
there on: into the decision, the parameters of policies, and what is logged of it. Nothing in it is taken from what a
message says of its sender. What is not known is empty, and fits no rule about it: unknown is closed.

`how` says what the user is known by:

    "certificate"    the certificate of the connection is the user's own
    "password"       the node has proven to know the user's password
    "token"          a token of an issuer that this node trusts came with the wish
    "vouched"        the node says so, and the rules let it vouch for its users
    ""               nobody: the node asks for itself, and nothing vouches for it but its key
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from headwater.errors import ConfigError, ConfigProblem
from headwater.spelling import did_you_mean

Attribute: TypeAlias = str | int | float | bool
Known: TypeAlias = Literal["certificate", "password", "token", "vouched", ""]

PROVEN = ("certificate", "password", "token")  # what the groups are known by, also that there are none
MAX_TEXT = 255  # characters of a name
MOST_GROUPS = 64
MOST_ATTRIBUTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user on a device at a node. `attributes` are what is known of the user besides: a department, a clearance; as
    any mapping of names to texts, numbers, or true and false."""

    user: str = ""
    groups: tuple[str, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict, hash=False)
    device: str = ""
    device_kind: str = ""
    node: str = ""  # the id of the node that the connection is with
    how: Known = ""

    def __post_init__(self) -> None:
        """Check all of it at once: much of it comes from files and from tokens of others."""
        groups: object = self.groups
        each = (groups,) if isinstance(groups, str) else tuple(groups) if isinstance(groups, Iterable) else (groups,)
        problems = [
            problem
            for place, value in (
                ("user", self.user),
                ("device", self.device),
                ("device_kind", self.device_kind),
                ("node", self.node),
            )
            if (problem := _text_problem(f"identity: {place}", value, empty=True)) is not None
        ]
        problems += [
            problem for group in each if (problem := _text_problem("identity: groups", group, empty=False)) is not None
        ]
        problems += _attribute_problems(self.attributes)
        if len(each) > MOST_GROUPS:
            problems.append(ConfigProblem("identity: groups", f"at most {MOST_GROUPS}", f"{len(each):,}"))
        if self.how not in get_args(Known):
            known = [text for text in get_args(Known) if text]
            problems.append(ConfigProblem("identity: how", f"one of {', '.join(known)}", repr(self.how)[:MAX_TEXT],
                                          did_you_mean(self.how, known)))  # fmt: skip
        if problems:
            raise ConfigError(problems, "an identity cannot be like this")
        object.__setattr__(self, "groups", tuple(sorted(set(each))))
        object.__setattr__(self, "attributes", MappingProxyType(dict(sorted(self.attributes.items()))))

    def __str__(self) -> str:
        who = f'user "{self.user}"' if self.user else "nobody in particular"
        device = f' on "{self.device}"' if self.device else ""
        kind = f" ({self.device_kind})" if self.device_kind else ""
        name, dot, _ = self.node.rpartition(".")  # of an id, which ends with the beginning of a fingerprint
        node = f" at {name if dot else self.node}" if (name if dot else self.node) else ""
        return f"{who}{device}{kind}{node}"


def _text_problem(place: str, value: object, *, empty: bool) -> ConfigProblem | None:
    if isinstance(value, str) and (value or empty) and len(value) <= MAX_TEXT and value.isprintable():
        return None
    return ConfigProblem(place, f"{0 if empty else 1} to {MAX_TEXT} printable characters", repr(value)[:MAX_TEXT])


def _attribute_problems(attributes: object) -> list[ConfigProblem]:
    place = "identity: attributes"
    if not isinstance(attributes, Mapping):
        return [ConfigProblem(place, "names with values", repr(attributes)[:MAX_TEXT])]
    found = [] if len(attributes) <= MOST_ATTRIBUTES else [
        ConfigProblem(place, f"at most {MOST_ATTRIBUTES}", f"{len(attributes):,}")
    ]  # fmt: skip
    for name, value in list(attributes.items())[:MOST_ATTRIBUTES]:
        if not isinstance(name, str) or not name.isidentifier() or len(name) > MAX_TEXT:
            found.append(ConfigProblem(place, "names as those of parameters", repr(name)[:MAX_TEXT]))
        elif isinstance(value, str):
            problem = _text_problem(f"{place} {name}", value, empty=True)
            found += [] if problem is None else [problem]
        elif not isinstance(value, bool | int | float):
            found.append(ConfigProblem(f"{place} {name}", "a text, a number, or true or false", repr(value)[:MAX_TEXT]))
    return found


NOBODY = Identity()

__all__ = ["NOBODY", "PROVEN", "Attribute", "Identity", "Known"]
