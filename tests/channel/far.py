"""Sources of other processes, for tests of one: local ones that say what a stand-in says.

They say under which key their positions are kept, and which events come again. With each new node such a source begins
at 1 again, as if it sent everything once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater import Node, Source
from headwater.channel.options.delivery import Reliable
from headwater.store import NodeState
from tests.channel.events import sighting

DURABLE = Reliable(durable=True)
MANUAL = Reliable(durable=True, acknowledge="manual")
KEY = "far.0123abcd/1700000000000000000/1"


def far(channel: Any, key: str | None = KEY, *, resent: int = 0, name: str | None = None) -> Source:
    """A source that stands in for one of another process; events up to `resent` may have come before."""
    source: Any = channel.source(name)
    source.position_key = key
    source.resent = lambda seq: seq <= resent
    made: Source = source
    return made


@contextmanager
def kept(path: Path | str = ":memory:", **options: Any) -> Iterator[Any]:
    """A node with state."""
    with NodeState(path) as state, Node(**options) as node:
        node.state = state
        yield node


def publish(source: Source, *numbers: int) -> None:
    for number in numbers:
        source.publish(sighting(number))
