"""What waits for other nodes has a counterpart for coroutines: the loop goes on, and who waits can be cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from headwater import Event, Node, i64
from headwater.correlation import all_of, on
from tests.federation.nodes import GUARD, Log, eventually

CHANNEL = "a.number"


class Number(Event):
    n: i64


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Node, Node]]:
    """A node for sources and one for sinks."""
    async with Node("lab", listen="tcp/127.0.0.1:0") as lab, Node("desk", connect=lab.endpoints[0]) as desk:
        lab.channel(CHANNEL, Number)
        desk.channel(CHANNEL, Number)
        assert await desk.auntil(lambda: desk.peers == ["lab"], GUARD)
        yield lab, desk


async def beside(waiting: Awaitable[Any]) -> tuple[Any, int]:
    """What comes of it, and how often the loop has had its turn meanwhile."""
    turns, task = 0, asyncio.ensure_future(waiting)
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return task.result(), turns


async def cancelled(waiting: Awaitable[Any]) -> None:
    """It can be given up while it waits."""
    task = asyncio.ensure_future(waiting)
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, GUARD)


def helpers() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "headwater-aside"]


@contextmanager
def held(handler: threading.Event) -> Any:
    try:
        yield
    finally:
        handler.set()


def test_a_coroutine_waits_for_other_nodes_while_its_loop_goes_on() -> None:
    async def main() -> None:
        async with pair() as (lab, desk):
            seen, source = Log(), lab.channel(CHANNEL).source("s")
            sink = desk.channel(CHANNEL).subscribe(seen, "n > :least", params={"least": 10})
            ready, turns = await beside(desk.aready(GUARD))
            assert ready and turns > 1 and desk.unready() == []
            for n in range(20):
                await source.send(n=n)
            flushed, turns = await beside(lab.aflush(GUARD))
            assert flushed and turns > 1
            seen.wait(9)
            points, turns = await beside(sink.achange(params={"least": 15}))
            assert list(points.values()) == [20] and turns > 1 and sink.epoch == 2
            for n in range(20):
                await source.send(n=n)
            assert await lab.aflush(GUARD)
            seen.wait(13)
            assert seen.field("n") == [*range(11, 20), *range(16, 20)]

    asyncio.run(main())


def test_a_coroutine_that_waits_is_told_of_news_on_its_own_loop() -> None:
    async def main() -> None:
        async with pair() as (lab, desk):
            here, looked = threading.get_ident(), set()

            def there() -> bool:
                looked.add(threading.get_ident())
                return bool(desk.remote_sources(CHANNEL))

            waiting = asyncio.ensure_future(desk.auntil(there, GUARD))
            await asyncio.sleep(0)
            assert not waiting.done()
            lab.channel(CHANNEL).source("s")
            assert await waiting and looked == {here}
            assert await desk.auntil(lambda: False, 0.05) is False
            with pytest.raises(ZeroDivisionError):  # what the condition raises is for who waits
                await desk.auntil(lambda: bool(1 / 0), GUARD)
            assert desk._engine is not None and not desk._engine.scheduler._loops

    asyncio.run(main())


def test_waiting_can_be_cancelled_and_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with pair() as (lab, desk):
            go_on = threading.Event()
            source = lab.channel(CHANNEL).source("s")
            sink = desk.channel(CHANNEL).subscribe(lambda event: go_on.wait(GUARD), queue=1)
            assert await desk.aready(GUARD)
            with held(go_on):
                await cancelled(desk.auntil(lambda: False, GUARD))
                for n in range(10):  # of which most wait, since the sink does not go on
                    await source.send(n=n)
                await cancelled(lab.aflush(GUARD))
                assert not helpers()
            assert await lab.aflush(GUARD)
            assert desk._engine is not None and not desk._engine.scheduler._loops
            assert sink.epoch == 1

    asyncio.run(main())


def test_a_change_that_is_cancelled_before_others_know_of_it_changes_nothing() -> None:
    async def main() -> None:
        async with pair() as (lab, desk):
            seen, source = Log(), lab.channel(CHANNEL).source("s")
            sink = desk.channel(CHANNEL).subscribe(seen, "n > 10")
            assert await desk.aready(GUARD)
            with lab._wiring.lock:  # lab cannot take anything up
                await cancelled(sink.achange(where="n > 5"))
            assert sink.epoch == 1 and not helpers()
            assert await desk.aready(GUARD)
            source.publish_many([{"n": n} for n in range(20)])
            seen.wait(9)
            await sink.achange(where="n > 15")
            assert sink.epoch == 2

    asyncio.run(main())


def test_alone_there_is_nobody_to_wait_for() -> None:
    async def main() -> None:
        async with Node("alone") as node:
            channel = node.channel(CHANNEL, Number)
            sink, source = channel.subscribe("n > 10"), channel.source()
            matches = node.correlate(all_of(on(channel, "n > 10", name="high"), on(channel, "n < 5", name="low")))
            assert await node.aready() and await node.aflush()
            assert await node.auntil(lambda: True) and not await node.auntil(lambda: False, 0.05)
            source.publish_many([{"n": n} for n in range(20)])
            assert list((await sink.achange(where="n > 15")).values()) == [20]
            assert list((await matches.achange(part="low", where="n < 3")).values()) == [20]
            source.publish_many([{"n": n} for n in range(20)])
            sink.cancel()
            assert [event.n async for event in sink] == [*range(11, 20), *range(16, 20)]

    asyncio.run(main())


def test_what_goes_wrong_is_raised_where_it_is_awaited() -> None:
    async def main() -> None:
        async with Node("alone") as node:
            sink = node.channel(CHANNEL, Number).subscribe("n > 10")
            with pytest.raises(ValueError, match="expected where="):
                await sink.achange()
            with pytest.raises(ValueError, match="m"):
                await sink.achange(where="m > 10")
            assert sink.epoch == 1
        eventually(lambda: not helpers(), "no thread is left")

    asyncio.run(main())
