"""A node without a federation waits for conditions like any other."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headwater import Node
from tests.federation.nodes import GUARD

CHANNEL = "alone.count"


def test_it_waits_until_a_condition_holds() -> None:
    """A handler in another thread is let go only when the condition has been looked at before it is done."""
    looked, heard = threading.Event(), list[int]()

    def handler(event: object) -> None:
        assert looked.wait(GUARD)
        heard.append(event.n)  # type: ignore[attr-defined]

    def done() -> bool:
        found = len(heard) == 3
        looked.set()
        return found

    with Node("alone") as node:
        channel = node.channel(CHANNEL, "n: i64")
        channel.subscribe(handler, dispatch="pool")
        source = channel.source()
        for n in range(3):
            source.publish(n=n)
        assert node.until(done, GUARD)
        assert heard == [0, 1, 2]
        assert not node.until(lambda: False, 0.05) and not node.until(lambda: False, 0)
        with pytest.raises(ZeroDivisionError):
            node.until(lambda: bool(1 / 0), GUARD)


def test_a_coroutine_waits_and_its_loop_goes_on() -> None:
    async def main() -> None:
        async with Node("alone") as node:
            channel = node.channel(CHANNEL, "n: i64")
            heard = list[int]()
            channel.subscribe(lambda event: heard.append(event.n))
            source, loop = channel.source(), asyncio.get_running_loop()

            def done() -> bool:
                if len(heard) < 3:
                    loop.call_soon(lambda: source.publish(n=len(heard)))  # on this loop, while it is waited
                return len(heard) == 3

            assert await node.auntil(done, GUARD) and heard == [0, 1, 2]
            assert not await node.auntil(lambda: False, 0.05)

    asyncio.run(main())
