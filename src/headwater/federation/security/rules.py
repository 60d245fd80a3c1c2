"""Who may do what on which channel.

    Rules([
        Rule("ie.tcd.**", "dublin", may=("advertise",)),
        Rule("ie.tcd.**", ["group:staff", "user:ann"], may=("subscribe", "install")),
        Rule("**", "*", may=("subscribe",)),
    ])

The first rule whose channel pattern and whose `who` both fit decides: what it lists is allowed, everything else is
refused. A rule with `may=()` so refuses everything to those it fits. Where no rule fits, the default holds.

`who` names those who have proven who they are, `*` standing for any text:

    dublin, lab-*         by certificate or by user and password
    certificate:dublin    by certificate only
    user:ann              by user and password only
    group:staff           the groups in the certificate, or of the user
    key:1f2e3d4c...       by the fingerprint of its key: all 64 hex digits, or the first 32 at least
    *                     everybody this node listens to at all
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from headwater.channel.names import Pattern
from headwater.channel.options.settings import near, quoted, show, unknown
from headwater.errors import ChannelError, ConfigError, ConfigProblem
from headwater.federation.security.identity import ID_DIGITS
from headwater.federation.security.policy import ACTIONS, Action, Allow, Deny

How = Literal["certificate", "password", "key"]

MAX_WHO = 255
_SPOKEN = {
    "advertise": "advertise on",
    "subscribe": "subscribe to",
    "install": "install code on",
    "transact": "transact on",
    "vouch": "vouch for its users on",
}
# What a rule gives that does not say what: to vouch for others must be said.
RIGHTS: tuple[Action, ...] = tuple(action for action in ACTIONS if action != "vouch")
_EVERY_NAME = Pattern("*.**")
_PREFIXES = ("certificate", "user", "group", "key")
FINGERPRINT_DIGITS = 64
_KEY = re.compile(rf"[0-9a-f]{{{ID_DIGITS},{FINGERPRINT_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class Principal:
    """What a node has proven about itself.

    `how`: "certificate" (the name is in it), "password" (the name is a user's) or "key" (it owns the key, no more; the
    name is `key:` and the beginning of the fingerprint).
    """

    name: str
    how: How
    fingerprint: str
    groups: tuple[str, ...] = ()
    certified: Any = field(default=None, compare=False, repr=False)  # by what an authority vouches for it

    def __str__(self) -> str:
        match self.how:
            case "certificate":
                return f'"{self.name}" (by certificate)'
            case "password":
                return f'user "{self.name}"'
            case _:
                return f'"{self.name}" (a key that nobody vouches for)'


@dataclass(frozen=True, slots=True)
class Rule:
    """On channels of this pattern, these may do that, and nothing else.

    "install" is to have code run at a source that is more than a conjunction of comparisons; "transact", on the channel
    of a type's changes (`objects.TYPE`), to create, change and destroy objects of that type; "publish", on
    `library.NAME`, to sign versions of that name of a library, and to have subscriptions go on with another version;
    "inspect", to know what others ask of a channel. "vouch" is to ask for what its users may have, who it says that
    they are: only rules that list it give that.
    """

    channel: str
    who: str | Sequence[str]
    may: Sequence[Action] = RIGHTS

    _pattern: Pattern = field(init=False, repr=False, compare=False)
    _who: tuple[re.Pattern[str] | str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if problems := self.problems({"channel": self.channel, "who": self.who, "may": self.may}, "Rule:"):
            raise ConfigError(problems)
        who = (self.who,) if isinstance(self.who, str) else tuple(self.who)
        may = (self.may,) if isinstance(self.may, str) else tuple(self.may)
        object.__setattr__(self, "who", who)
        object.__setattr__(self, "may", may)
        object.__setattr__(self, "_pattern", Pattern(self.channel))
        object.__setattr__(self, "_who", tuple(_matcher(each) for each in who))

    @staticmethod
    def problems(values: dict[str, Any], place: str) -> list[ConfigProblem]:
        """Everything wrong with the settings of a rule, from code or a file."""
        names = ("channel", "who", "may")
        found = [unknown(f"{place} {key}", key, names) for key in values if key not in names]
        try:
            Pattern(values.get("channel"))  # type: ignore[arg-type]
        except ChannelError as error:
            found.append(ConfigProblem(f"{place} channel", "a pattern of channel names", str(error)))
        found += who_problems(values.get("who"), f"{place} who")
        may = values.get("may", RIGHTS)
        if not isinstance(may, list | tuple | str):
            found.append(ConfigProblem(f"{place} may", f"a list of {quoted(ACTIONS)}", show(may)))
        else:
            for action in [may] if isinstance(may, str) else may:
                if action not in ACTIONS:
                    found.append(
                        ConfigProblem(f"{place} may", f"some of {quoted(ACTIONS)}", show(action), near(action, ACTIONS))
                    )
        return found

    def fits(self, principal: Principal, channel: str) -> bool:
        """Whether this rule is about this principal on this channel."""
        return self._pattern.matches(channel) and self.concerns(principal)

    def concerns(self, principal: Principal) -> bool:
        """Whether this rule is about this principal on some channel."""
        return any(_is(principal, who) for who in self._who)

    def __str__(self) -> str:
        may = ", ".join(self.may) if self.may else "nothing"
        return f"{self.channel}: {', '.join(self.who)} may {may}"


class Rules:
    """A policy (`policy.py`): rules in order, and whether what none of them is about is allowed."""

    __slots__ = ("default", "rules", "why")

    def __init__(self, rules: Iterable[Rule] = (), *, default: bool = False, why: str = "") -> None:
        self.rules = tuple(rules)
        self.default = default
        self.why = why or ("that is the default here" if default else "what no rule allows is refused")

    def decide(self, principal: Principal, action: Action, channel: str, on_behalf_of: str = "") -> Allow | Deny:
        """Whether the principal may do this on the channel of this name, and which rule says so. Rules are about who
        has proven to be somebody: they give it nothing that it would not get itself, whoever it is for."""
        deed = f"{_SPOKEN.get(action, action)} {channel}"
        may, may_not = f"{principal} may {deed}", f"{principal} may not {deed}"
        if action not in ACTIONS:  # refused whatever the rules say, for none can be about it
            return Deny(f"{may_not}: there is no such action, only {quoted(ACTIONS)}")
        for number, rule in enumerate(self.rules, 1):
            if rule.fits(principal, channel):
                allowed = action in rule.may
                return (Allow if allowed else Deny)(f"{may if allowed else may_not}: rule {number} ({rule}) decides")
        if self.default and action in RIGHTS:
            return Allow(f"{may}: {self.why}")
        return Deny(f"{may_not}: {self._no_rule(principal, action, channel)}")

    def decide_some(self, principal: Principal, action: Action, pattern: Pattern) -> Allow | Deny:
        """Whether the principal may do this on some channel that a pattern fits, if there is one; and which rule says
        so."""
        deed = f"{_SPOKEN.get(action, action)} any of {pattern}"
        may, may_not = f"{principal} may {deed}", f"{principal} may not {deed}"
        for number, rule in enumerate(self.rules, 1):
            if not rule.concerns(principal) or not rule._pattern.meets(pattern):
                continue
            if action in rule.may:
                return Allow(f"{may}: rule {number} ({rule}) allows some")
            if rule._pattern.covers(pattern):
                return Deny(f"{may_not}: rule {number} ({rule}) decides")
        if self.default and action in RIGHTS:
            return Allow(f"{may}: {self.why}")
        return Deny(f"{may_not}: {self._no_rule(principal, action, str(pattern))}")

    def _no_rule(self, principal: Principal, action: Action, channel: str) -> str:
        count = f"none of the {len(self.rules)} rules is about it" if self.rules else "there are no rules"
        hint = f'Rule("{channel}", "{_spelled(principal)}", may=("{action}",))'
        why = self.why if action in RIGHTS else "only a rule that lists it gives that"
        return f"{count}, and {why}; hint: where it is refused, add {hint}"

    def open_to_all(self, action: Action, channel: str) -> bool:
        """Whether everybody who is heard at all may do this on the channel."""
        for rule in self.rules:
            if rule._pattern.matches(channel):
                if action not in rule.may:
                    return False
                if "*" in rule.who:
                    return True
        return self.default and action in RIGHTS

    def seen_by(self, principal: Principal) -> Callable[[str], bool]:
        """Whether the principal may know that there is a channel of some name: that is who may do something on it."""
        about = [(rule._pattern.matches, bool(rule.may)) for rule in self.rules if rule.concerns(principal)]

        def sees(channel: str) -> bool:
            return next((anything for matches, anything in about if matches(channel)), self.default)

        return sees

    def hides_from(self, principal: Principal) -> bool:
        """Whether there may be names of channels that the principal may not know of, whatever channels there are."""
        for rule in self.rules:
            if rule.concerns(principal):
                if not rule.may:
                    return True
                if rule._pattern.covers(_EVERY_NAME):
                    return False
        return not self.default

    def deals_with(self, principal: Principal, action: Action | None = None) -> bool:
        """Whether there is anything at all that the principal may do; or any channel on which it may do this."""
        may = [rule for rule in self.rules if (rule.may if action is None else action in rule.may)]
        return self.default or any(rule.concerns(principal) for rule in may)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)


def _spelled(principal: Principal) -> str:
    match principal.how:
        case "password":
            return f"user:{principal.name}"
        case "key":
            return f"key:{principal.fingerprint}"
        case _:
            return principal.name


def _is(principal: Principal, who: re.Pattern[str] | str) -> bool:
    if isinstance(who, str):  # key:<digits>
        return principal.fingerprint.startswith(who)
    return any(who.fullmatch(name) for name in _names(principal))


def is_about(who: str, principal: Principal) -> bool:
    """Whether what is written for a principal, as in a rule, is about this one."""
    return _is(principal, _matcher(who))


def _names(principal: Principal) -> Iterator[str]:
    """All that can be written for a principal. A bare key has no name, so no pattern of names is ever about it."""
    yield "*"
    for group in principal.groups:
        yield f"group:{group}"
    if principal.how == "certificate":
        yield f":{principal.name}"
        yield f"certificate:{principal.name}"
    elif principal.how == "password":
        yield f":{principal.name}"
        yield f"user:{principal.name}"


def _matcher(text: str) -> re.Pattern[str] | str:
    if text == "*":
        return re.compile(r"\*")  # everybody
    prefix, colon, rest = text.partition(":")
    if colon and prefix == "key":
        return rest
    # A plain name is looked for behind a bare colon, so that "*x" never reaches into "group:x".
    return re.compile(
        (f"{prefix}:" if colon else ":") + ".*".join(map(re.escape, (rest if colon else text).split("*")))
    )


def who_problems(who: object, place: str) -> list[ConfigProblem]:
    """What is wrong with what is written for one principal, or for several."""
    each = [who] if isinstance(who, str) else who
    expected = 'a name, or a list of names, such as "dublin", "user:ann", "group:staff", "key:1f2e3d4c..." or "*"'
    if not isinstance(each, list | tuple) or not each:
        return [ConfigProblem(place, expected, "nothing" if not isinstance(each, int | float) else show(who))]
    found = []
    for name in each:
        prefix, colon, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
        if not isinstance(name, str) or not name or len(name) > MAX_WHO or name != name.strip():
            found.append(ConfigProblem(place, expected, show(name)))
        elif colon and (prefix not in _PREFIXES or not rest):
            hint = near(prefix, _PREFIXES)
            found.append(ConfigProblem(place, f"one of {quoted(f'{p}:...' for p in _PREFIXES)}", show(name), hint))
        elif prefix == "key" and colon and not _KEY.fullmatch(rest):
            expected_key = f"key: and {ID_DIGITS} to {FINGERPRINT_DIGITS} digits 0-9 a-f of its fingerprint"
            found.append(ConfigProblem(place, expected_key, show(name), _too_short(rest)))
    return found


def _too_short(digits: str) -> str | None:
    if not re.fullmatch(r"[0-9a-f]+", digits) or len(digits) >= ID_DIGITS:
        return None
    return (
        f"{len(digits)} digits are {4 * len(digits)} bits, and so another key that begins like this one can be made: "
        "write the whole fingerprint, which the refusal of such a node shows"
    )
