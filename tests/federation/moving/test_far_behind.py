"""Sinks that have missed much move: more than their queue may hold, to wherever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater import Queue
from tests.federation.moving.test_sinks import CHANNEL, DURABLE, Count, begun, publish
from tests.federation.nodes import GUARD, nodes
from tests.federation.nodes import Log as Seen

MANY = 3000
SHORT: dict[str, Any] = {"queue": Queue(limit=64)}


@pytest.mark.parametrize("where", [None, "n % 2 == 0"])
@pytest.mark.parametrize("others", [False, True])
def test_it_comes_to_the_node_of_the_source(where: Any, others: bool, tmp_path: Path) -> None:
    """What it has missed is in the log there, and does not fit into its queue while it is on its way; nor does what is
    published until it has arrived."""
    wanted = [n for n in range(100 + 2 * MANY) if where is None or n % 2 == 0]
    with nodes() as make:
        lab, source, _, phone, sink, seen = begun(make, tmp_path, where)
        if others:
            lab.channel(CHANNEL, Count).subscribe(print, "n < 0", name="beside", delivery=DURABLE)
        seen.wait(sum(n < 100 for n in wanted))
        token = sink.move()
        publish(source, 100, MANY)
        after = Seen()
        moved = lab.resume(token, after, timeout=GUARD, **SHORT)
        publish(source, MANY, 2 * MANY)
        assert lab.until(lambda: len(after.field("n")) >= sum(100 <= n < 2 * MANY for n in wanted), GUARD)
        token = moved.move()  # and away again
        publish(source, 2 * MANY, 2 * MANY + 100)
        at_last = Seen()
        phone.resume(token, at_last, timeout=GUARD, **SHORT)
        at_last.wait(sum(n >= 2 * MANY for n in wanted))
        assert seen.field("n") + after.field("n") + at_last.field("n") == wanted


def test_it_leaves_before_it_has_read_what_it_could_not_keep(tmp_path: Path) -> None:
    """At the node of the source, paused, with more in the log than it could keep: where it comes to it has that."""
    with nodes() as make:
        lab, source, _, phone, sink, seen = begun(make, tmp_path)
        seen.wait(100)
        there = Seen()
        moved = lab.resume(sink.move(), there, timeout=GUARD, **SHORT)
        publish(source, 100, 200)
        there.wait(100)
        moved.pause()
        publish(source, 200, MANY)
        token = moved.move()
        publish(source, MANY, MANY + 100)
        after = Seen()
        phone.resume(token, after, timeout=GUARD)
        after.wait(MANY - 100)
        assert after.field("n") == list(range(200, MANY + 100))
