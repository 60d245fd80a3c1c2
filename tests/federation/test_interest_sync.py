"""What sinks want reaches other nodes, whoever subscribes meanwhile and whatever goes wrong for one channel."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes

CHANNELS, EACH = 20, 40


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Watched(dict[object, Any]):
    """The interests of a channel; it keeps who looks through them while others may change them."""

    def __init__(self, found: dict[object, Any], lock: Any, unguarded: list[str]) -> None:
        super().__init__(found)
        self.lock, self.unguarded = lock, unguarded

    def values(self) -> Any:
        if not self.lock._is_owned():
            self.unguarded.append("".join(traceback.format_stack(limit=4)))
        return super().values()


def _lab(made: Nodes) -> dict[str, Any]:
    lab = made("lab")
    return {f"t.c{n}": lab.channel(f"t.c{n}", "level: i64").source() for n in range(CHANNELS)}


def test_threads_that_subscribe_to_many_channels_lose_none(hasty: None) -> None:
    with nodes() as made:
        sources = _lab(made)
        desk = made("desk")
        made.together()
        came = {name: Log() for name in sources}
        channels = [desk.channel(name, "level: i64") for name in sources]
        for channel in channels:  # covers what follows, of which nobody else has to be told
            channel.subscribe(came[channel.name], "level >= 0")
        assert desk.ready(GUARD)
        failures: list[BaseException] = []
        unguarded: list[str] = []
        for channel in channels:
            channel.entries = Watched(channel.entries, desk._wiring.lock, unguarded)

        def subscribe(first: int) -> None:
            try:
                for number in range(first, EACH, 2):
                    for channel in channels:
                        channel.subscribe(came[channel.name], f"level == {number}")
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=subscribe, args=(first,)) for first in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert not unguarded, unguarded[0]
        assert desk.ready(GUARD)
        for source in sources.values():
            for number in range(EACH):
                source.publish(level=number)
        for name, log in came.items():
            log.wait(2 * EACH)
            assert sorted(log.field("level")) == sorted([*range(EACH), *range(EACH)]), name


def test_a_channel_that_fails_keeps_no_other_from_being_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong for one channel is tried again and reported; the others do not wait for it."""
    caplog.set_level(logging.ERROR, "headwater.federation")
    with nodes() as made:
        sources = _lab(made)
        desk = made("desk")
        made.together()
        assert desk._engine is not None
        broken, failed = set(list(sources)[::3]), dict.fromkeys(sources, 0)
        of = desk._engine.demands.of

        def of_or_not(channel: Any, peer: Any) -> Any:
            if channel.name in broken and threading.current_thread().name.endswith("keeper"):
                failed[channel.name] += 1
                raise RuntimeError(f"{channel.name}: as injected")
            return of(channel, peer)

        monkeypatch.setattr(desk._engine.demands, "of", of_or_not)
        came = {name: Log() for name in sources}
        with desk._wiring.lock:  # all of it is told of in one go
            for name in sources:
                desk.channel(name, "level: i64").subscribe(came[name], "level >= 0")
        whole = [desk.channel(name) for name in sources if name not in broken]
        assert desk.until(lambda: desk._engine.requester.settled(whole, barriers=True), GUARD)
        assert not desk.ready(0.2)
        for name in set(sources) - broken:
            sources[name].publish(level=1)
            came[name].wait(1)
        eventually(lambda: all(failed[name] > 2 for name in broken), "trying again")
        assert broken == {name for name in sources if any(f"{name}@lab:" in r.getMessage() for r in caplog.records)}
        assert set(desk.federation_report().failing) == {f"{name}@lab" for name in broken}
        broken.clear()
        assert desk.ready(GUARD)
        assert not desk.federation_report().failing
        for name, source in sources.items():
            source.publish(level=2)
            came[name].until(lambda events: any(event.level == 2 for event in events))
