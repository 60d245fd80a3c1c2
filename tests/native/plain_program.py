"""What a program sees of encoding, decoding and publishing, as JSON: machine code and the plain path must agree.

`python -m tests.native.plain_program` prints it; with the word `unknown`, as if no version of Python had been verified.
"""

from __future__ import annotations

import enum
import json
import logging
import sys
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone
from types import BuiltinFunctionType
from typing import Any

import headwater as hw
from headwater import python_versions
from headwater.native.python.codec import fast_decoder, fast_encoder
from headwater.types import Array, Event, event_type, f32, i8, u16, u64

NOON = datetime(2026, 3, 4, 12, 30, 15, 123456, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(Event):
    x: float
    y: i8 | None = None


class Everything(Event):
    n: i8
    whole: int
    large: u64
    single: f32
    text: str
    data: bytes
    colour: Colour | None
    point: Point
    path: list[Point]
    grid: Array[u16, 2, 2]
    seen: datetime | None = None
    near: bool = False


class Level(Event):
    level: float
    seen: datetime = NOON


RIGHT = {
    "n": -128, "whole": 2**63 - 1, "large": 2**64 - 1, "single": 0.1, "text": "Grüße, 世界 🎉", "data": b"\0\xff",
    "colour": Colour.BLUE, "point": Point(1.5, 7), "path": [Point(0.0), Point(-1e300, -1)], "grid": ((1, 2), (3, 4)),
    "seen": NOON, "near": True,
}  # fmt: skip
ODD: Iterable[dict[str, Any]] = (
    {},
    {"n": 127, "whole": -(2**63), "large": 0, "colour": None, "seen": None, "text": "", "data": b"", "path": []},
    {"n": 128},
    {"n": True},
    {"n": 1.0},
    {"whole": 2**63},
    {"large": -1},
    {"large": 2**64},
    {"single": 1e39},
    {"single": 3},
    {"text": "\ud800"},
    {"text": None},
    {"data": bytearray(b"ab")},
    {"colour": "blue"},
    {"point": None},
    {"path": (Point(1.0),)},
    {"path": [Point(1.0), None]},
    {"grid": ((1, 2), (3,))},
    {"grid": [[1, 2], [3, 65535]]},
    {"seen": NOON.astimezone(timezone(timedelta(hours=2)))},
    {"seen": NOON.replace(fold=1)},
    {"seen": NOON.replace(tzinfo=None)},
    {"seen": datetime(1, 1, 1, tzinfo=UTC)},
    {"seen": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)},
)


def attempt(function: Any, *given: Any) -> str:
    """What a function answers, or what it says."""
    try:
        answer = function(*given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return answer.hex() if isinstance(answer, bytes) else repr(answer)


def coded() -> list[Any]:
    """Records of odd events, and events of damaged records."""
    kind = event_type(Everything)
    fast, decode = fast_encoder(kind), fast_decoder(kind)

    def encode(event: Any) -> Any:
        record = fast(event) if fast is not None else None
        return kind.encode(event) if record is None else record

    found = [attempt(encode, Everything(**{**RIGHT, **change})) for change in ODD]
    whole = kind.encode(Everything(**RIGHT))
    found += [attempt(decode, bytes.fromhex(text)) for text in found if ":" not in text]
    found += [attempt(decode, whole[:size]) for size in range(0, len(whole), 7)]
    found += [attempt(decode, whole[:at] + b"\xff" + whole[at + 1 :]) for at in range(len(whole))]
    return found


def published() -> dict[str, Any]:
    """What sinks get of ordinary and of odd calls, and what is counted."""
    log: list[Any] = []
    with hw.Node("lab") as node:
        channel = node.channel("ie.tcd.level", Level)
        source = channel.source("probe")
        threaded = node.channel("ie.tcd.many", Level)
        many = threaded.source("probe")

        def handler(event: Level) -> None:
            log.append(repr(event))
            if event.level == 3.0:
                source.publish(Level(0.25))
                source.publish(Level(30.0))
            if event.level == 4.0:
                raise ValueError("four")

        sink = channel.subscribe(handler, "level > 0.5")
        calls: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
            ((Level(1.0),), {}),
            ((Level(0.5),), {}),
            (({"level": 2.0},), {}),
            ((), {"level": 2.5}),
            ((Level(3.0),), {}),
            ((Level(4.0),), {}),
            ((Level("five"),), {}),
            ((Level(6),), {}),
            (("six",), {}),
            ((), {"volume": 7}),
            ((Level(8.0, NOON.replace(tzinfo=None)),), {}),
            ((Level(9.0, NOON + timedelta(days=1)),), {}),
        )
        answers = [
            attempt(lambda given=given, fields=fields: source.publish(*given, **fields)) for given, fields in calls
        ]
        seen: list[float] = []
        threaded.subscribe(lambda event: seen.append(event.level))
        event = [Level(float(i)) for i in range(500)]
        threads = [threading.Thread(target=lambda: [many.publish(each) for each in event]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counts = sink.counts
        builtin = type(source.publish) is BuiltinFunctionType
    fates = {name: getattr(counts, name) for name in ("evaluated", "passed", "rejected", "undecided", "delivered")}
    return {"answers": answers, "log": log, "counts": fates, "threads": [len(seen), sum(seen)], "builtin": builtin}


def main() -> None:
    told: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("headwater").addHandler(handler)
    logging.getLogger("headwater").setLevel(logging.INFO)
    if "unknown" in sys.argv[1:]:
        python_versions.VERIFIED = ()
    result = {"coded": coded(), **published()}
    print(json.dumps(result | {"told": [text for text in told if "machine code" in text]}))


if __name__ == "__main__":
    main()
