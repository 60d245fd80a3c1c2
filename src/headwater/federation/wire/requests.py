"""What nodes say to each other beside events: who they are, what they have, and requests. Nothing here is trusted yet.

Every message travels in a signed envelope (`security/envelope.py`), or on a direct stream whose other end has proven
who it is.
In the clear go only a node's `Card`, by which others can begin to talk with it, and its `News`, that something of it
has changed. All else is for one node, and in a box that only that one can open (`security/session.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from headwater import runnable
from headwater.decoders import msgpack_decoder
from headwater.errors import FederationError, FrameError
from headwater.federation.wire.control import Name, Number, Positions, SourceAd
from headwater.interest import Interest
from headwater.ir import serial
from headwater.ir.params import plain
from headwater.types import EventType, event_type

MAX_LIST = 100_000
MAX_TAG = (1 << 30) - 1  # the bits above say that an event is of the past, or whole where others are marks
MAX_ENDPOINTS = 32
MAX_PROOF = 16 << 10  # bytes of what proves for whom a wish is
MAX_NAMES = 100  # of channels and patterns in one question whether they may be subscribed to
MAX_PACKED = 4 << 20  # bytes of wishes in one message, as they travel
MAX_UNPACKED = 16 << 20  # and as they are
PACK_BYTES = 512  # bytes from which on they are worth packing

Key = Annotated[bytes, Meta(min_length=32, max_length=32)]  # public, for what is only for this node
Tag = Annotated[int, Meta(ge=0, le=MAX_TAG)]
Priority = Annotated[int, Meta(ge=-(2**62), le=2**62)]
MAX_PRIORITY_BYTES = 65_536  # of a program that says how urgent an event is
Zones = Annotated[list[Name], Meta(max_length=4096)]
ByTag = Annotated[dict[Name, dict[Tag, Number]], Meta(max_length=MAX_LIST)]
Lease = Annotated[float, Meta(gt=0, le=3600)]  # seconds
KNOWN_TYPES = 64  # that are remembered as they are packed
_ALL = "true"  # the program that carries a type
# Beside a channel that a node sequences: the one with its events in their order, and what its sequencers say.
ORDERED, ORDERING = ".ordered", ".ordering"


class ChannelAd(msgspec.Struct, frozen=True, array_like=True):
    """A channel that a node has; `type` is in serial form, None for bytes."""

    name: Name
    type: bytes | None
    parent: str | None = None  # of a derived channel
    program: bytes | None = None  # how it is derived
    params: bytes | None = None
    number: Number = 0  # another one if it was closed and opened again


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """After which channel and source a page of a state goes on; no channel: all of them were there."""

    channel: str | None
    source: Annotated[int, Meta(ge=-1)] = -1


SessionId = Annotated[str, Meta(max_length=64)]


class Card(msgspec.Struct, frozen=True):
    """What a node says of itself to everybody: which run of it this is, and the key to write to it with."""

    node: Name  # its id
    incarnation: Number
    version: Number  # of its state; 1: it has no channels or sources yet
    exchange: Key
    multicast: bool = False
    router: bool = False
    columns: bool = True  # it takes rows as columns, and compressed frames; else records only
    names: bool = False  # it takes interests by name
    session: SessionId = ""  # of Zenoh, as others see it at the end of a connection


class State(msgspec.Struct, frozen=True, tag=True):
    """What one other node may know of a node; or, `since` a version, what has changed of that; or a page of it, which
    begins `after` a place and goes on at `next`."""

    node: Name  # its id
    incarnation: Number
    version: Number  # of this state; grows
    endpoints: Annotated[list[Name], Meta(max_length=MAX_ENDPOINTS)]  # of its direct streams
    exchange: Key
    channels: list[ChannelAd]
    sources: list[SourceAd]
    multicast: bool = False
    router: bool = False
    since: Number = 0
    gone_channels: list[str] = []
    gone_sources: list[int] = []
    after: Cursor | None = None
    next: Cursor | None = None
    restricted: bool = False  # there may be channels of which it is not told; the same whatever channels there are
    columns: bool = True  # as on its card
    names: bool = False  # as on its card
    session: SessionId = ""  # as on its card


class News(msgspec.Struct, frozen=True):
    """A node's state has changed; what of it, it says to those who ask."""

    node: Name
    incarnation: Number
    version: Number


class WishRate(msgspec.Struct, frozen=True, array_like=True):
    """What is wanted at most, as `Rate.packed` has it; and how urgent an event is: the same for all, or by a program
    that makes a number of it."""

    micro: Annotated[int, Meta(ge=1, le=10**15)]
    burst: Annotated[int, Meta(ge=1, le=MAX_TAG)]
    reserve: Annotated[list[tuple[Priority, Annotated[int, Meta(ge=0, le=1000)]]], Meta(max_length=16)] = []
    age: Annotated[int, Meta(ge=0, le=10**18)] = 0
    priority: Priority | None = None
    program: Annotated[bytes, Meta(max_length=MAX_PRIORITY_BYTES)] = b""

    @property
    def packed(self) -> tuple[int, int, list[tuple[int, int]], int]:
        """Without how urgent events are."""
        return self.micro, self.burst, self.reserve, self.age


class Wish(msgspec.Struct, frozen=True, array_like=True):
    """One distinct interest of a node's sinks; `program` None for everything."""

    tag: Tag
    program: bytes | None
    params: bytes | None = None
    tagged: bool = False  # it runs at the source only, and what it passes is marked with its tag
    zones: Zones = []
    history: Annotated[int, Meta(ge=-1, le=MAX_TAG)] = 0  # events of the past to begin with; -1 for all there are
    turn: Tag = 0  # grows with each sink that is to begin with the past
    kind: Annotated[str, Meta(max_length=100)] = ""  # of what `program` is; "" for an interest
    on_behalf_of: Annotated[str, Meta(max_length=255)] = ""  # whom it is for; "" for the node itself
    named: bytes = b""  # the entry of a library that it is (`library_requests.Named`), instead of `program`
    device: Annotated[str, Meta(max_length=255)] = ""  # on which device that one is, and of which kind that is
    device_kind: Annotated[str, Meta(max_length=255)] = ""
    proof: Annotated[bytes, Meta(max_length=MAX_PROOF)] = b""  # what proves who that is; without it, the node says so
    rate: WishRate | None = None  # no more than that, of what it passes at this node

    @property
    def special(self) -> bool:
        """Whether it is more than a filter from now on."""
        return bool(self.tagged or self.zones or self.history)


# ── answers ──


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """Done, or what is wrong; `later`: that may be over soon, and is to be asked for again."""

    error: str = ""
    later: bool = False


class Installed(msgspec.Struct, frozen=True, tag=True):
    """The answer: the last event of each source before the interests held, and what was refused and why."""

    points: Positions
    refused: dict[int, str] = {}  # by tag
    error: str = ""
    group: str = ""  # the multicast group, where events come by that
    barrier: Number = msgspec.field(default=0, name="mark")  # the version whose barrier says that all of it is in force
    all: bool = False  # it is not known here what has changed: say all of it
    hidden: dict[int, str] = {}  # by tag: wishes that a policy lets nothing through for, and why; that may change
    memory: Number = 0  # of the source: what was asked for in another one it may have given up by now
    # Tags of wishes by name whose code is not here: nothing was done, say it again with these in full.
    missing: Annotated[list[Tag], Meta(max_length=MAX_LIST)] = []


class MayNot(msgspec.Struct, frozen=True, tag=True):
    """Those to which it may not, and why: by the rules and the names alone, so that it says nothing about which
    channels there are."""

    why: dict[str, str] = {}


class Told(msgspec.Struct, frozen=True, tag=True):
    """By tag: evaluated, passed (-1 where only all together are counted), undecided, how it runs there, and why so."""

    counts: dict[int, tuple[int, int, int, str, str]]
    crossed: int = 0  # events that went to the node that asks, for all of its sinks together
    # By tag, of wishes that have a rate: events that passed and were beyond it; and those that were beyond what the
    # node may have at all, for all of its sinks together.
    shed: dict[int, int] = {}
    withheld: Number = 0


class Vote(msgspec.Struct, frozen=True, tag=True):
    """The answer to both: granted, or the newer term that the node has heard of, and who leads in that."""

    granted: bool
    term: Number
    leader: str = ""
    place: Number = 0  # the last that this node has heard of
    close: bool = True  # who asks could go on from where the last leader was, as far as this node knows:
    known: tuple[Number, Number] = (0, 0)  # the term of which it has last heard a leader, and the version of that
    reserved: Number = 0  # up to this place that leader may have given


class LatestIs(msgspec.Struct, frozen=True, tag=True):
    """The newest version of a node's description."""

    version: Number


# ── requests ──


class Request(msgspec.Struct, frozen=True):
    """What one node asks of another. Its class's name is its kind on the wire (`tag=True`); who answers it registers
    that (`federation/peers/request_registry.py`). The answer is of the type `answer`, or `Accepted` with an error."""

    answer: ClassVar[Any]


class Install(Request, frozen=True, tag=True):
    """What a node wants of one channel from now on: all of it, or what has changed since a version that was asked for.

    Either may be said again without harm. A change names every wish that is another than at `base`, as it is now: so it
    leads from any version between `base` and its own to its own. Wishes are in `wishes`, and, if they are many, in
    `packed` (`pack_wishes`); those that do not fit into one message come in several of the same version, in order, and
    count when the last of them is there."""

    answer: ClassVar[Any] = Installed
    channel: Name
    version: Number
    wishes: list[Wish] = []
    reliable: bool = True
    promises: bool = False  # idle sources are to say how far time has come
    multicast: bool = False
    positions: Positions = {}  # by sid: what durable sinks have seen before a restart
    routes: list[list[str]] = []  # if only gateways want it: the federations behind each that want it
    # Of sources that are logged, by name and tag (0 for all filters): up to which event all has come that was wanted,
    # and from where on the state of an interest counts.
    reached: ByTag = {}
    since: ByTag = {}
    # Durable sinks that have had events of them: nothing goes before they are there, or it has taken too long.
    known: Annotated[list[str], Meta(max_length=MAX_LIST)] = []
    moved: Annotated[list[str], Meta(max_length=MAX_LIST)] = []  # and that have left the node: they are not waited for
    base: Number = 0  # 0: this is all
    packed: Annotated[bytes, Meta(max_length=MAX_PACKED)] = b""
    gone: Annotated[list[Tag], Meta(max_length=MAX_LIST)] = []  # wishes since `base`
    sinks: Annotated[list[str], Meta(max_length=MAX_LIST)] = []  # names of durable sinks
    gone_sinks: Annotated[list[str], Meta(max_length=MAX_LIST)] = []
    page: Annotated[int, Meta(ge=0, le=MAX_LIST)] = 0
    more: bool = False  # another page follows


class Routed(Request, frozen=True, tag=True):
    """No direct stream is possible: use Zenoh's path."""

    answer: ClassVar[Any] = Accepted
    why: Annotated[str, Meta(max_length=1000)] = ""
    wanted: bool = False  # this node is set up without direct streams


class Describe(Request, frozen=True, tag=True):
    """For the state of a node: what has changed since a version, if there is one; and the page after a place. With the
    version of the state of the one that asks, which so need not be told of it."""

    answer: ClassVar[Any] = State
    since: Number = 0
    after: Cursor | None = None
    version: Number = 0


class Judged(Request, frozen=True, tag=True):
    """A policy has changed, or where somebody is: what it says now of wishes of the node that is told, by tag. Those
    that are `hidden` get nothing, and why; those that are `shown` get something again."""

    answer: ClassVar[Any] = Accepted
    channel: Name
    hidden: dict[int, str] = {}
    shown: Annotated[list[Tag], Meta(max_length=MAX_LIST)] = []


class MaySubscribe(Request, frozen=True, tag=True):
    """Whether a node may subscribe to channels of these names, or to any that these patterns fit, of which it is not
    told that they are there."""

    answer: ClassVar[Any] = MayNot
    names: Annotated[list[Name], Meta(max_length=MAX_NAMES)]


class Ask(Request, frozen=True, tag=True):
    """For the counts of this node's interests at the other one."""

    answer: ClassVar[Any] = Told
    channel: str


class Heard(Request, frozen=True, tag=True):
    """Whether the other node knows a source of this one, and all that it wants of it is in force."""

    answer: ClassVar[Any] = Accepted
    channel: Name
    source: Number  # its number


class Stand(Request, frozen=True, tag=True):
    """A sequencer wants to lead in a term that is newer than all it has heard of."""

    answer: ClassVar[Any] = Vote
    channel: Name
    term: Number
    leader: Name  # its rank
    lease: Lease
    known: Number = 0  # the last term in which it has followed a leader closely, or led,
    knows: str = ""  # and whom


class Lead(Request, frozen=True, tag=True):
    """A sequencer leads, for at least so many seconds from now on, if this is heard by enough nodes."""

    answer: ClassVar[Any] = Vote
    channel: Name
    term: Number
    leader: Name
    lease: Lease
    place: Number  # the last that it has given
    followers: Annotated[list[Name], Meta(max_length=4096)]  # who could go on from there, itself among them
    version: Number  # of that, in this term
    resigned: bool = False  # it has ended, with all done
    reserved: Number = 0  # up to this place it may give, until it says so again


class Latest(Request, frozen=True, tag=True):
    """Which version of a node's state is the latest, with all that it has advertised until it answers."""

    answer: ClassVar[Any] = LatestIs


Reply = msgspec.Struct  # of the type that the request names as its answer, or `Accepted`


class _Named(msgspec.Struct, frozen=True):
    """The kind of a request, whatever else is in it."""

    type: Annotated[str, Meta(max_length=100)]


_NAMED = msgpack_decoder(_Named)
_REPLIES: dict[Any, msgspec.msgpack.Decoder[Any]] = {}
_CARD = msgpack_decoder(Card)
_WISHES = msgpack_decoder(Annotated[list[Wish], Meta(max_length=MAX_LIST)])
_PARAMS = msgpack_decoder(dict[str, Any])
_NEWS = msgpack_decoder(News)
pack = msgspec.msgpack.Encoder().encode


def _unpack(reader: Any, data: bytes, what: str) -> Any:
    try:
        return reader.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"expected {what}, found something else: {error}") from None


def kind_of(data: bytes) -> str:
    """Of a request: by which name it was declared."""
    named: _Named = _unpack(_NAMED, data, "a request")
    return named.type


def decoder(type: Any) -> Callable[[bytes], Any]:
    """Decodes requests, or answers, of one type."""
    made = msgpack_decoder(type)
    return lambda data: _unpack(made, data, f"a message {type.__name__}")


def reply(data: bytes, expected: Any) -> Reply:
    """The answer to a request that is answered by an `expected`."""
    found = _REPLIES.get(expected)
    if found is None:
        found = _REPLIES[expected] = msgpack_decoder(expected | Accepted)
    made: Reply = _unpack(found, data, "a reply")
    return made


def card(data: bytes) -> Card:
    """The card of a node, decoded."""
    made: Card = _unpack(_CARD, data, "the card of a node")
    return made


def news(data: bytes) -> News:
    """News of a node, decoded."""
    made: News = _unpack(_NEWS, data, "news of a node")
    return made


# ── types, interests and parameters as bytes ──


def pack_wishes(wishes: list[Wish]) -> tuple[list[Wish], bytes]:
    """Wishes as they travel: interests in one channel have much in common, first of all their type."""
    data = pack(wishes)
    return (wishes, b"") if len(data) < PACK_BYTES else ([], zlib.compress(data, 1))


def unpack_wishes(request: Install) -> list[Wish]:
    """All wishes of a message; FrameError if they are none, or unpack to more than they may."""
    if not request.packed:
        return request.wishes
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(request.packed, MAX_UNPACKED)
    except zlib.error as error:
        raise FrameError(f"expected packed wishes, found something else: {error}") from None
    if not unpacking.eof or unpacking.unused_data:
        raise FrameError(f"expected packed wishes of at most {MAX_UNPACKED:,} bytes, found more, or not all of them")
    return [*request.wishes, *_unpack(_WISHES, data, "wishes")]


@lru_cache(KNOWN_TYPES)
def pack_type(type: EventType | None) -> bytes | None:
    """An event type as the input of a program that passes everything."""
    return None if type is None else serial.dumps(Interest(_ALL, type).program)


def unpack_type(data: bytes | None) -> EventType | None:
    """The event type that `pack_type` has packed; None: the channel carries bytes."""
    return None if data is None else event_type(serial.loads(data).input)


def pack_params(params: Mapping[str, Any]) -> bytes:
    """The parameters of an interest as bytes."""
    return pack(plain(params))


def unpack_params(data: bytes | None) -> dict[str, Any]:
    """The parameters of an interest, decoded and not checked yet."""
    if data is None:
        return {}
    found = _unpack(_PARAMS, data, "parameters")
    made: dict[str, Any] = found
    return made


def unpack_wish(wish: Wish) -> Any:
    """What a wish is for, of whatever kind; None for everything. It is checked as one's own is."""
    if wish.program is None or not wish.kind:
        return unpack_interest(wish.program, wish.params)
    return runnable.loads(wish.kind, wish.program, unpack_params(wish.params))


def unpack_interest(program: bytes | None, params: bytes | None) -> Interest | None:
    """What someone sent; it is checked as any interest is."""
    if program is None:
        if params is not None and unpack_params(params):
            raise FederationError("parameters came without an interest")
        return None
    return Interest.loads(program, unpack_params(params))
