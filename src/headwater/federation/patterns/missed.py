"""What another node has published of values that nobody had asked it for yet: read back page by page, and looked at
before anybody relies on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from headwater.channel.queues.forms import fitting
from headwater.errors import ClosedError, FederationError, FrameError, HeadwaterError, Unreachable
from headwater.federation.arrive.record_check import check_of
from headwater.federation.patterns.sources import Points
from headwater.federation.wire.past_requests import MAX_SOURCES, Past, PastOf, PastPage, PastPart
from headwater.federation.wire.requests import pack_params, unpack_type
from headwater.types.marks import is_of

if TYPE_CHECKING:
    from headwater.federation.peers.peer import Peer
    from headwater.interest import Interest
    from headwater.patterns.crossing.marks import Mark, Marking

MOST_EVENTS = 1_000_000  # of one source, in one gap


class MissedEvent(NamedTuple):
    """An event that was read back; `stamp` is in nanoseconds."""

    channel: str
    source: str
    node: str
    seq: int
    stamp: int
    record: bytes | Mark  # of an event that fits no element only that is known


@dataclass
class Missed:
    """What all nodes together had; `lost`: events that may have been wanted, and that nobody has any more."""

    events: list[MissedEvent] = field(default_factory=list)
    lost: int = 0
    problems: dict[str, str] = field(default_factory=dict)  # by node
    offences: list[tuple[str, str]] = field(default_factory=list)  # of whom, and what


Put = Callable[[Any, Past], Any]


def read_missed(
    found: Missed,
    peer: Peer,
    channel: Any,
    interest: Interest,
    since: int,
    points: Points,
    put: Put,
    marking: Marking | None = None,
) -> None:
    """Read back what a node's sources of a channel have, from a time on up to where they were asked for it anyway. With
    a `marking`, these are events or marks."""
    names: dict[int, str] = {}
    wanted: list[PastOf] = []
    for ad in [ad for ad in peer.sources if ad.channel == channel.name and not ad.origin]:
        upto = points.get((peer.id, channel.name, ad.sid), 0)
        if upto:
            names[ad.sid] = ad.name
            wanted.append(PastOf(ad.name, ad.sid, upto))
    question = Past(channel.name, wanted, since, interest.dumps(), pack_params(interest.params))
    try:
        for part, records in _parts(peer, channel, question, put, marking) if wanted else ():
            found.lost += part.missing + bool(part.error)
            if part.error:
                found.problems[peer.name] = part.error
            found.events += [
                MissedEvent(channel.name, names[part.sid], peer.name, seq, stamp, record)
                for seq, stamp, record in zip(part.seqs, part.stamps, records, strict=True)
            ]
    except FrameError as error:  # it is not what a node of ours says
        found.offences.append((peer.id, str(error)))
        found.lost += 1
        found.problems[peer.name] = str(error)
    except (ClosedError, Unreachable):  # it may come back with it
        raise
    except HeadwaterError as error:
        found.lost += 1
        found.problems[peer.name] = str(error)


def _parts(
    peer: Peer, channel: Any, question: Past, put: Put, marking: Marking | None
) -> Iterator[tuple[PastPart, Sequence[bytes | Mark]]]:
    """Part by part, each checked, until all sources were read; FrameError if a node says what cannot be."""
    convert = _converter(peer, channel, marking)
    left, read = question.sources, 0
    while left:
        page: PastPage = put(peer, replace(question, sources=left[:MAX_SOURCES]))
        if not page.parts:
            raise FrameError(f"expected events of {left[0].source}, or that there are none, found nothing")
        left = list(left)
        for part in page.parts:
            if not left:
                raise FrameError("expected the sources that were asked for, found more")
            asked = left.pop(0)
            _check(part, asked, question.since)
            read += len(part.seqs)
            if read > MOST_EVENTS:
                raise FederationError(f"expected at most {MOST_EVENTS:,} events in a gap, found more")
            yield part, convert(part.records)
            if part.reached < asked.upto:
                left.insert(0, replace(asked, after=part.reached))
                break


def _check(part: PastPart, asked: PastOf, since: int) -> None:
    """That it is of the source that was asked for, goes on from where it was, and has what was wanted."""
    first = -1 if asked.after is None else asked.after
    if part.sid != asked.sid or not len(part.seqs) == len(part.stamps) == len(part.records):
        raise FrameError(f"expected a number, a time and a record for each event of {asked.source}, found others")
    if part.reached <= first or part.reached > asked.upto:
        raise FrameError(f"expected events of {asked.source} after {first}, found some up to {part.reached}")
    numbers = [first, *part.seqs]
    if any(one >= other for one, other in zip(numbers, part.seqs, strict=False)) or (
        part.seqs and part.seqs[-1] > part.reached
    ):
        raise FrameError(f"expected ascending numbers of {asked.source} up to {part.reached}, found {part.seqs[:8]}")
    if any(stamp < since for stamp in part.stamps):
        raise FrameError(f"expected events of {asked.source} since {since}, found older ones")


def _converter(peer: Peer, channel: Any, marking: Marking | None) -> Callable[[list[bytes]], Sequence[bytes | Mark]]:
    """From records of the node's type to those of the channel's here, and to marks; FrameError if they are none."""
    ad = peer.channel(channel.name)
    type = channel.type if ad is None else unpack_type(ad.type)
    if type is None or channel.type is None:
        raise FederationError(f"channel {channel.name} carries bytes, which no pattern can look into")
    check, plan = check_of(type), fitting(type, channel.type)
    check_mark = None if marking is None else check_of(marking.type)

    def convert(record: bytes) -> bytes | Mark:
        mark = marking is not None and is_of(record, marking.type)
        if (check_mark if mark and check_mark is not None else check)([record]):
            raise FrameError(f"expected records of channel {channel.name}, found others")
        if mark and marking is not None:
            return marking.opened(record)
        return record if plan is None else plan.convert(record)

    return lambda records: [convert(record) for record in records]


__all__ = ["Missed", "MissedEvent", "read_missed"]
