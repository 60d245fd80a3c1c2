"""A sink leaves its node: it stands still at an exact point of each source, and that is written down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headwater.channel.names import Pattern
from headwater.channel.options.delivery import Reliable
from headwater.channel.queues.position_keys import LOGGED, key_of
from headwater.channel.routing.letter import Chunk
from headwater.channel.subscription import Subscription
from headwater.errors import SubscriptionError
from headwater.federation.moving.resumption import Resumed
from headwater.federation.moving.source_keys import is_logged, shared_key
from headwater.federation.wire.move_requests import SinkMove
from headwater.federation.wire.requests import pack_params, pack_type

if TYPE_CHECKING:
    from headwater.channel.routing.attachment import Attachment
    from headwater.federation.context import Context

STILL_SECONDS = 10.0  # for which a handler is waited for
Points = dict[str, int]


def check_movable(subscription: Subscription, kinds: tuple[type, ...]) -> None:
    """Raise, with what to do instead, if a sink is of a kind that cannot go on elsewhere."""

    def refuse(expected: str, found: str, hint: str) -> SubscriptionError:
        return SubscriptionError(
            f"move: subscription {subscription.name!r}: expected {expected}, found {found}; {hint}"
        )

    delivery = subscription._options.delivery
    durable = isinstance(delivery, Reliable) and delivery.durable
    if type(subscription) not in kinds or len(subscription._asked) != 1:
        raise refuse(
            "a subscription to events", type(subscription).__name__.lower(), "named patterns move by themselves"
        )
    if durable and getattr(delivery, "within", None) is not None:
        hint = "move the database to the other node, and subscribe there"
        raise refuse("its position in the node's state", "it in a database of yours (within=)", hint)
    if subscription._options.order == "total":
        raise refuse(
            "a subscription to a channel",
            'one in the order of a sequencer (order="total")',
            "cancel it, and subscribe there",
        )
    derived = [channel.name for channel, _ in subscription._attachments if channel.parent is not None]
    if derived:
        hint = "subscribe to its parent, with the interest that it is derived by"
        raise refuse("channels that other nodes have", f"{derived[0]!r}, which is derived here", hint)
    asked = subscription._asked[0]
    if isinstance(asked.target, Pattern) and asked.where is not None and not isinstance(asked.where, str):
        raise refuse("an interest as text, for channels of a pattern", repr(asked.where), "write it as text")
    interests = [each.entry.interest for each in subscription._attachments.values()]
    if any(interest is not None and interest.contextual for interest in interests):
        raise refuse("an interest in events", "one that reads the context of their sources", "subscribe there")


class Standstill:
    """A sink that is held while it is found out where it is. What comes meanwhile waits, or stays in logs."""

    def __init__(self, context: Context, subscription: Subscription, why: str) -> None:
        self._context, self._sink, self.why = context, subscription, why
        # What comes meanwhile waits in its queue, where no log has it: full, that makes publishers wait.
        subscription._fence(why)
        if subscription._progress is not None:
            subscription._progress.fence(why)
        self._before_here = subscription.since if isinstance(subscription, Resumed) else {}
        # Of sources of this node: what is not waiting by now is done when the handler has returned.
        self._own = {key: self._next(source) for source, key in self._own_sources()}

    def reach(self) -> None:
        """Wait until nothing is being handled, and it is written what is done; raises if that takes too long, or cannot
        be: `undo` it then."""
        sink = self._sink
        if not sink._mailbox.wait(lambda: sink._mailbox.idle and sink._handling is None, STILL_SECONDS):
            raise SubscriptionError(
                f"move: subscription {sink.name!r}: expected its handler to return within {STILL_SECONDS:g} s, found "
                "it still at work; call move() elsewhere than in that handler, or later"
            )
        if sink._handler is None and sink._progress is not None:
            with sink._pulling:  # whoever pulls just now has done so
                sink._progress.settle()  # who pulls has had what it was given
        if sink._progress is not None:
            sink._progress.write_owed()
            sink._progress.note_handed()

    def undo(self) -> None:
        """It goes on here."""
        sink = self._sink
        sink._recall_left_out()
        if sink._progress is not None:
            sink._progress.fence(None)
        if not sink.cancelled:
            sink._unfence(self.why)

    # ── where it is ──

    def positions(self) -> Points:
        """By key, after which event of each source a durable sink goes on."""
        progress = self._sink._progress
        if progress is None:
            return {}
        done = progress.positions()
        found = {key: seq for key, seq in done.items() if key.startswith(LOGGED) and " " not in key}
        for attachment, source in self._sources():
            if not source.local and source.rereads:
                found[source.position_key] = self._remote(attachment, source)
            elif not source.local and source.position_key in done:  # what waits of it goes along
                found[source.position_key] = done[source.position_key]
        for source, key in self._own_sources():
            oldest = progress.unsettled(source)
            reached = min(self._own.get(key, source.seq), self._next(source), progress.gaps.get(key, source.seq))
            found[key] = reached if oldest is None else min(reached, oldest - 1)
        for _, source in self._sources():
            if source.local and not is_logged(source):  # what waits of them goes along
                found[shared_key(self._context, source)] = self._next(source)
        return found

    def handed(self) -> Points:
        """By key, up to where events were handed over and are not done."""
        progress = self._sink._progress
        return {} if progress is None else {k: seq for k, seq in progress.handed().items() if k.startswith(LOGGED)}

    def unsure(self) -> list[str]:
        """Sources of which it is not known whether the next event was handed over as well."""
        progress = self._sink._progress
        return [] if progress is None else [key for key in progress.unsure() if key.startswith(LOGGED)]

    def since(self) -> Points:
        """By key, from where on the state of its interest counts, where it has any."""
        # Of sources that are not known here yet, as the token says that it came with.
        found = dict(self._before_here) if all(each.epoch == 1 for each in self._sink._attachments.values()) else {}
        for attachment, source in self._sources():
            interest = attachment.entry.interest
            if interest is None or not interest.stateful:
                continue
            if source.local:
                if source.log is not None:
                    key, start = self._key(source), attachment.begins_with_state(source)
                    found[key] = self._before_here.get(key, start) if attachment.epoch == 1 else start
            elif source.rereads and source.reached is not None:
                start = source.reached.since.get(source._stream_of(attachment))
                if start is not None:
                    found[source.position_key] = start
        return found

    def _sources(self) -> Iterator[tuple[Attachment, Any]]:
        for (channel, _), attachment in list(self._sink._attachments.items()):
            for flow in channel.flows():
                yield attachment, flow.source

    def _own_sources(self) -> Iterator[tuple[Any, str]]:
        for _, source in self._sources():
            if source.local and source.log is not None and not source.relays:
                yield source, self._key(source)

    def _key(self, source: Any) -> str:
        return source.home or key_of(source.node, source.log.id, source.name)

    def _remote(self, attachment: Attachment, source: Any) -> int:
        """All that has come is done, or waits, or was left to the log, or is still on its way from there: then it is as
        far as what is done."""
        progress = self._sink._progress
        assert progress is not None
        key = source.position_key
        with source.lock:
            done = progress.position(source)
            oldest = progress.unsettled(source)
            if key in progress.gaps or oldest is not None or source.live:
                return max(done, 0 if oldest is None else oldest - 1)
            return max(done, int(source._reached_by(attachment)))

    def _next(self, source: Any) -> int:
        """The last event of a source of this node before those that wait."""
        with source.lock:
            waiting = [_first(item[1]) for item in self._sink._mailbox.contents() if item[1].source is source]
            return min(waiting) - 1 if waiting else int(source.seq)


def _first(letter: Any) -> int:
    return int(letter.seqs[0]) if isinstance(letter, Chunk) else int(letter.seq)


def described(subscription: Subscription, id: bytes, node: str, still: Standstill) -> SinkMove:
    """What a token says of a sink that stands still."""
    asked, options = subscription._asked[0], subscription._options
    pattern = isinstance(asked.target, Pattern)
    where, program, params = "", None, None
    interest = next((each.entry.interest for each in subscription._attachments.values()), None)
    if pattern:
        where = asked.where or ""
        params = pack_params(asked.params) if asked.params else None
    elif interest is not None:
        params = pack_params(interest.params) if interest.params else None
        if interest.origin is not None:
            where = f"@{interest.origin.name}/{interest.origin.version}"
        else:
            program = interest.dumps()
    delivery = options.delivery
    return SinkMove(
        id,
        node,
        str(asked.target) if pattern else asked.target.name,  # type: ignore[union-attr]
        None if pattern else pack_type(asked.target.type),  # type: ignore[union-attr]
        where,
        program,
        params,
        None if options.zones is None else sorted(options.zones),
        isinstance(delivery, Reliable) and delivery.acknowledge == "manual",
        options.order,
        still.positions(),
        still.handed(),
        still.since(),
        "durable" if delivery.durable else delivery.name,
        still.unsure(),
    )


__all__ = ["Standstill", "check_movable", "described"]
