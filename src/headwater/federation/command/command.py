"""What `headwater node`, `listen`, `publish` and `certificates` do; `headwater.cli` reads the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from headwater.channel.channel import Channel
from headwater.channel.names import Pattern
from headwater.channel.patterns.operator import PatternOrder
from headwater.channel.patterns.subscription import Watch
from headwater.channel.subscription import Subscription
from headwater.errors import ConfigError, ConfigProblem, EncodeError, FederationError, LibraryError, PatternError
from headwater.federation.command.json_lines import from_line, to_line
from headwater.federation.naming.names import Names
from headwater.federation.network import Network
from headwater.federation.node import Node, split
from headwater.federation.security.certificates import issue, make_authority, renew, revoke
from headwater.federation.security.settings import Security
from headwater.interest import is_reference
from headwater.patterns.checker.channel_names import KNOWN
from headwater.patterns.pattern import Pattern as RowPattern
from headwater.signals import End, end_signals
from headwater.types import EventType

LISTEN = "tcp/127.0.0.1:7447"
SHOWN_LINES = 10  # that are no events, of which is said what is wrong with them
BAD_LINES = 3  # exit code: some lines were no events, all others were published
SHOWN_NAMES = 5  # of other nodes, in an error
RECHECK_SECONDS = 0.2  # after which it is looked whether the end has come
HELD_SECONDS = 3.0  # for which a pattern comes no further, after which it is said who is waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """How a command takes part in a federation."""

    name: str | None = None
    listen: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    scout: bool | str = False
    federation: str | None = None
    config: Path | None = None
    state: Path | None = None
    security: Path | None = None
    router: bool | None = None  # None: as the configuration says
    named: bool = False  # it knows those nodes only that it deals with

    def node(self) -> Node:
        """The node, which joins; what is said here goes before what the configuration says."""
        plain, table = split(self.config)
        given: dict[str, Any] = dict(table or {})
        if isinstance(inline := given.get("security"), Mapping):
            folder = self.config.parent if self.config is not None else ""
            given["security"] = Security.read(inline, place=str(self.config), folder=folder)
        for name in ("listen", "connect", "scout", "federation"):
            if getattr(self, name):
                given[name] = getattr(self, name)
        if self.named:
            given["acquaintance"] = "named"
        if self.router is not None:
            given["router"] = self.router
            if self.router and not Network.of(given).wanted:
                given["listen"] = LISTEN
        network = Network.of(given)
        if not network.wanted:
            hint = "the endpoint that `headwater node` has printed, for instance"
            raise ConfigError([ConfigProblem("network", "--connect, --listen or --scout", "none of them", hint)])
        return Node(self.name, network=network, security=_path(self.security), state=self.state, config=plain)


def run_node(joining: Joining, names: Path | None = None) -> int:
    """A node in the foreground, until Ctrl-C or SIGTERM; with names, if there is a file of theirs."""
    with end_signals() as ended, joining.node() as node:
        service = None if names is None else Names(node, names)

        def changed(event: Any) -> None:
            others = len(node.peers)
            _say(f"{event.change} {event.node} ({event.id}); {others} other node{'s' if others != 1 else ''}")

        node.subscribe("headwater.nodes", changed)
        report = node.federation_report()
        streams = f", streams at {', '.join(report.streams)}" if report.streams else ""
        _say(f"node {node.name} ({node.id}) of {report.federation} listens at {', '.join(node.endpoints)}{streams}")
        if service is not None and service.server is not None:
            _say(f"serves {', '.join(service.server.domains)} as {service.address}")
        while not ended.wait(RECHECK_SECONDS):
            pass
        _say(f"node {node.name} leaves")
    return 0


def await_entry(node: Node, reference: str, wait: float) -> None:
    """Until one of the nodes that are met has what a name stands for, or it has taken too long."""
    asked: set[str] | None = None

    def known() -> bool:
        nonlocal asked
        present = set(node.peers)
        if present == asked:
            return False  # whoever is there has been asked
        asked = present
        try:
            node.library.find(reference)
        except LibraryError:
            return False
        return True

    node.until(known, wait)


def listen(
    joining: Joining,
    target: str,
    *,
    where: str | None,
    params: Mapping[str, object],
    type: EventType | None,
    count: int | None,
    seconds: float | None,
    wait: float,
    history: int,
) -> int:
    """Print the events of a channel, or of those that fit a pattern, as lines of JSON."""
    with end_signals() as ended, joining.node() as node:
        node.subscribe("headwater.interests", _tell_refusal, "change == 'refused' and not here")
        if where is not None and is_reference(where):
            await_entry(node, where, wait)
        if any(sign in target for sign in "*?"):
            Pattern(target)
            subscription = node.subscribe(target, where=where, params=params or None, history=history)
        else:
            _channel(node, target, type, wait, ended)
            subscription = node.channel(target).subscribe(where=where, params=params or None, history=history)
        if not node.ready(wait):
            for reason in node.unready():
                _complain("listen", reason)
        refused = dict(subscription.refused)
        places = [f"{target}@{source.rpartition('@')[2]}" for source in node.remote_sources(target)]
        if places and all(place in refused for place in places):
            raise FederationError(f"no source of {target} takes the interest: {refused[places[0]]}")
        _print_all(subscription, ended, count, seconds)
    return 0


def match(
    joining: Joining,
    text: str,
    *,
    params: Mapping[str, object],
    aliases: Mapping[str, str],
    count: int | None,
    seconds: float | None,
    wait: float,
    order: PatternOrder,
    history: int,
) -> int:
    """Print the matches of a pattern over channels of the federation, as lines of JSON."""
    with end_signals() as ended, joining.node() as node:
        node.subscribe("headwater.interests", _tell_refusal, "change == 'refused' and not here")
        if not node.until(lambda: ended.is_set() or _is_told(node, text, params, aliases), wait):
            others = f"{len(node.peers)} other node{'s' * (len(node.peers) != 1)}"
            _complain("listen", f"not all channels of the pattern are at {others}, in {wait:g} s (--wait)")
        watch = node.match(text, params=params or None, aliases=aliases or None, order=order, history=history)
        if not node.ready(wait):
            for reason in node.unready():
                _complain("listen", reason)
        _print_all(watch, ended, count, seconds, Waiting(watch).look)
    return 0


class Waiting:
    """Says whom a pattern waits for, once for each: else one that is held back looks like one that finds nothing."""

    def __init__(self, watch: Watch[Any]) -> None:
        self._watch = watch
        self._place: tuple[object, object] | None = None  # how far it was, and who held it there
        self._since = 0.0  # that it has been there, or that this was said

    def look(self) -> None:
        """To be called while there is nothing to print."""
        report = self._watch.report()
        now, place = monotonic(), (report.watermark, report.held_by)
        if place != self._place:
            self._place, self._since = place, now
        elif report.held_by is not None and now - self._since >= HELD_SECONDS:
            reached = "" if report.watermark is None else f", of which nothing is known after {report.watermark:%X} UTC"
            _complain(
                "listen",
                f"waits for {report.held_by}{reached}: matches come when it is heard again, or given up; "
                "`patience 5 seconds` at the end of the pattern waits no longer than that",
            )
            self._since = float("inf")


def _is_told(node: Node, text: str, params: Mapping[str, object], aliases: Mapping[str, str]) -> bool:
    """Whether the channels of a pattern are known: if not, others may be about to tell of them. What else is wrong with
    it does not get better by waiting."""
    try:
        RowPattern(text, node._known_types(), params=params, aliases=aliases)
    except PatternError as error:
        return all(problem.expected != KNOWN for problem in error.problems)
    return True


def _print_all(
    subscription: Subscription[Any],
    ended: End,
    count: int | None,
    seconds: float | None,
    idle: Callable[[], None] = lambda: None,
) -> None:
    """Events as they come, so many of them, or for so long; `idle` is called while none comes."""
    end = None if seconds is None else monotonic() + seconds
    left = count
    while left != 0 and not ended.is_set() and (end is None or monotonic() < end):
        pause = RECHECK_SECONDS if end is None else max(0.0, min(RECHECK_SECONDS, end - monotonic()))
        event = subscription.get(pause)
        if event is None:
            idle()
            continue
        print(to_line(None if isinstance(event, bytes) else _type_of(event), event), flush=True)
        left = None if left is None else left - 1


def publish(
    joining: Joining,
    name: str,
    lines: Iterable[str | bytes],
    *,
    type: EventType | None,
    wait: float,
    allow_nobody: bool = False,
    skip: bool = False,
) -> int:
    """Publish what lines of JSON say; at the end, wait until it has been dealt with.

    If nobody has subscribed in time nothing is published, unless that is allowed. At a line that is no event it stops,
    or, with `skip`, goes on with the next; what was published by then is dealt with all the same."""
    with end_signals() as ended, joining.node() as node:
        channel = _channel(node, name, type, wait, ended)
        done = Published()
        with channel.source() as source, suppress(KeyboardInterrupt):
            await_sinks(node, [name], wait, ended, command="publish", allow_nobody=allow_nobody)
            for number, line in enumerate(_until(ended, lines), 1):
                if not line.strip():
                    continue
                try:
                    source.publish(from_line(channel.type, line))
                except EncodeError as error:
                    done.bad(f"line {number:,}: {error}", shown=skip)
                    if not skip:
                        break
                else:
                    done.events += 1
        flushed = node.flush(wait)
        return done.end(flushed, skip=skip)


@dataclass(slots=True)
class Published:
    """What has become of lines."""

    events: int = 0
    lines: int = 0  # that were no events
    last: str = ""  # what was wrong with the last of them

    def bad(self, why: str, *, shown: bool) -> None:
        """A line is no event."""
        self.lines, self.last = self.lines + 1, why
        if shown and self.lines <= SHOWN_LINES:
            more = "; others like it are only counted" if self.lines == SHOWN_LINES else ""
            print(f"headwater publish: {why}{more}", file=sys.stderr, flush=True)

    def end(self, flushed: bool, *, skip: bool) -> int:
        """Say so; the exit code."""
        late = "" if flushed else ", not all acknowledged"
        published = f"published {self.events:,} event{'s' * (self.events != 1)}{late}"
        if self.lines and not skip:
            raise FederationError(f"{self.last}; it stopped there and {published} (--bad-lines skip goes on)")
        left = f"; {self.lines:,} line{'s were' if self.lines != 1 else ' was'} no event and left out"
        print(f"{published}{left if self.lines else ''}", file=sys.stderr, flush=True)
        return 1 if not flushed else BAD_LINES if self.lines else 0


def authority(folder: Path, *, days: int) -> int:
    """Make an authority of one's own."""
    made = make_authority(folder, days=days)
    print(f"{made.certificate}: give it to every node")
    print(f"{made.key}: keep it secret; it is needed only to issue certificates")
    return 0


def certificate(folder: Path, name: str, *, hosts: Iterable[str], groups: Iterable[str], days: int) -> int:
    """Issue a certificate for a node."""
    made = issue(folder, name, hosts, groups=groups, days=days)
    print(f"{made.certificate}, {made.key}: for node {name}, with {made.authority}")
    return 0


def renewal(folder: Path, name: str, *, days: int) -> int:
    """Issue a node's certificate anew."""
    print(f"{renew(folder, name, days=days)}: for node {name}, for the same key; put it in the place of the old one")
    return 0


def revocation(folder: Path, names: Iterable[str], *, days: int) -> int:
    """Take certificates back."""
    made = revoke(folder, *names, days=days)
    print(f"{made}: for all nodes, as Security(revoked=...); make it anew within {days} days")
    return 0


# ── what they have in common ──


def _say(line: str) -> None:
    print(line, flush=True)


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _complain(command: str, what: str) -> None:
    print(f"headwater {command}: {what}", file=sys.stderr, flush=True)


def _tell_refusal(event: Any) -> None:
    print(f"headwater listen: {event.channel}@{event.node} refuses: {event.reason}", file=sys.stderr, flush=True)


def _type_of(event: Any) -> EventType:
    from headwater.types import event_type

    return event_type(event.__class__)


def _channel(node: Node, name: str, type: EventType | None, wait: float, ended: End) -> Channel:
    """A channel of the federation: of the type given, or as another node has it."""
    if type is not None:
        return node.channel(name, type)
    if not node.until(lambda: node.has_channel(name) or ended.is_set(), wait):
        known = ", ".join(sorted({ad.name for peer in _peers(node) if peer.state for ad in peer.state.channels}))
        others = f"{len(node.peers)} other nodes" if len(node.peers) != 1 else "1 other node"
        hidden = "" if node._engine is None else node._engine.permissions.hidden()
        raise FederationError(
            f"channel {name!r}: expected one that a node of the federation has, found none at {others} in {wait:g} s "
            f"(channels there: {known or 'none'}{hidden}); give --type to declare it, or a longer --wait"
        )
    return node.channel(name)


def await_sinks(
    node: Node, channels: Sequence[str], wait: float, ended: End, *, command: str, allow_nobody: bool
) -> None:
    """Wait until somebody has subscribed to one of these channels. FederationError if nobody does in time: what is
    published then is gone, which is said only where it is allowed."""
    if node.until(lambda: ended.is_set() or any(_is_wanted(node, name) for name in channels), wait):
        return
    names, others = ", ".join(channels), node.peers
    if others:
        count = "1 other node is" if len(others) == 1 else f"{len(others)} other nodes are"
        why = f"nobody has subscribed to {names} in {wait:g} s ({count} there: {', '.join(others[:SHOWN_NAMES])})"
    else:
        missing = "; ".join(f"{each.written}: {each}" for each in node.federation_report().contacts if not each.reached)
        why = f"no other node is there, in {wait:g} s" + (f" ({missing})" if missing else "")
    if not allow_nobody:
        raise FederationError(
            f"{why}: nothing is published; subscribe first, give a longer --wait, or --allow-nobody to publish all the "
            "same"
        )
    _complain(command, why)


def _is_wanted(node: Node, channel: str) -> bool:
    """Whether another node's interest in the channel is in force."""
    with node._wiring.lock:
        return any(channel in peer.crossings and peer.crossings[channel].wishes for peer in _peers(node))


def _peers(node: Node) -> list[Any]:
    return [] if node._engine is None else node._engine.everyone()


def _until(ended: End, lines: Iterable[str | bytes]) -> Iterator[str | bytes]:
    """Lines, until the end has come."""
    source = iter(lines)
    while not ended.is_set():
        ended.reading = True
        try:
            line = next(source, None)
        finally:
            ended.reading = False
        if line is None:
            return
        yield line


__all__ = ["Joining", "authority", "certificate", "listen", "publish", "run_node"]
