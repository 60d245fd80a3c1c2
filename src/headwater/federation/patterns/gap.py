"""What another node has published of values that nobody had asked it for yet: read back page by page, and looked at
before anybody relies on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from headwater.channel.queues.forms import fitting
from headwater.errors import FederationError, FrameError, HeadwaterError
from headwater.federation.arrive.record_check import check_of
from headwater.federation.wire.past_requests import Past, PastPage
from headwater.federation.wire.requests import pack_params, unpack_type

if TYPE_CHECKING:
    from headwater.federation.peers.peer import Peer
    from headwater.interest import Interest

MOST_EVENTS = 1_000_000  # of one source, in one gap


class Missed(NamedTuple):
    """An event that was read back; `stamp` is in nanoseconds."""

    channel: str
    source: str
    node: str
    seq: int
    stamp: int
    record: bytes


@dataclass
class Gap:
    """What all nodes together had; `lost`: events that may have been wanted, and that nobody has any more."""

    events: list[Missed] = field(default_factory=list)
    lost: int = 0
    problems: dict[str, str] = field(default_factory=dict)  # by node
    offences: list[tuple[str, str]] = field(default_factory=list)  # of whom, and what


Put = Callable[[Any, Past], Any]
Points = dict[tuple[str, str, int], int]  # by node, channel and number of a source: the last event before a change


def read_gap(gap: Gap, peer: Peer, channel: Any, interest: Interest, since: int, points: Points, put: Put) -> None:
    """Read back what a node's sources of a channel have, from a time on up to where they were asked for it anyway."""
    for ad in [ad for ad in peer.sources if ad.channel == channel.name and not ad.origin]:
        upto = points.get((peer.id, channel.name, ad.sid), 0)
        question = Past(
            channel.name, ad.name, ad.sid, upto, None, since, interest.dumps(), pack_params(interest.params)
        )
        if not upto:
            continue
        try:
            for page, records in _pages(peer, channel, question, put):
                gap.lost += page.missing
                gap.events += [
                    Missed(channel.name, ad.name, peer.name, seq, stamp, record)
                    for seq, stamp, record in zip(page.seqs, page.stamps, records, strict=True)
                ]
        except FrameError as error:  # it is not what a node of ours says
            gap.offences.append((peer.id, str(error)))
            gap.lost += 1
            gap.problems[peer.name] = str(error)
        except HeadwaterError as error:
            gap.lost += 1
            gap.problems[peer.name] = str(error)


def _pages(peer: Peer, channel: Any, question: Past, put: Put) -> Iterator[tuple[PastPage, list[bytes]]]:
    """Page by page, each checked; FrameError if a node says what cannot be."""
    convert = _converter(peer, channel)
    after, read = -1, 0
    while True:
        page: PastPage = put(peer, question)
        _check(page, question, after)
        read += len(page.seqs)
        if read > MOST_EVENTS:
            raise FederationError(f"expected at most {MOST_EVENTS:,} events of {question.source}, found more")
        yield page, convert(page.records)
        after = page.reached
        if after >= question.upto:
            return
        question = replace(question, after=after)


def _check(page: PastPage, question: Past, after: int) -> None:
    """That a page goes on from the one before, and has what was asked for."""
    first = -1 if after < 0 else after
    if not len(page.seqs) == len(page.stamps) == len(page.records):
        raise FrameError(f"expected a number, a time and a record for each event of {question.source}, found others")
    if page.reached <= first or page.reached > question.upto:
        raise FrameError(f"expected a page of {question.source} after {first}, found one up to {page.reached}")
    numbers = [first, *page.seqs]
    if any(one >= other for one, other in zip(numbers, page.seqs, strict=False)) or (
        page.seqs and page.seqs[-1] > page.reached
    ):
        raise FrameError(f"expected ascending numbers of {question.source} up to {page.reached}, found {page.seqs[:8]}")
    if any(stamp < question.since for stamp in page.stamps):
        raise FrameError(f"expected events of {question.source} since {question.since}, found older ones")


def _converter(peer: Peer, channel: Any) -> Callable[[list[bytes]], list[bytes]]:
    """From records of the node's type to those of the channel's here; FrameError if they are none."""
    ad = peer.channel(channel.name)
    type = channel.type if ad is None else unpack_type(ad.type)
    if type is None or channel.type is None:
        raise FederationError(f"channel {channel.name} carries bytes, which no pattern can look into")
    check, plan = check_of(type), fitting(type, channel.type)

    def convert(records: list[bytes]) -> list[bytes]:
        if check(records):
            raise FrameError(f"expected records of channel {channel.name}, found others")
        return records if plan is None else [plan.convert(record) for record in records]

    return convert


__all__ = ["Gap", "Missed", "read_gap"]
