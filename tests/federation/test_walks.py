"""The walks of docs/architecture.md are those that an event takes: a profiler sees the page's files in their order."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import headwater
from headwater import Event, f64
from tests.federation.nodes import GUARD, Nodes

SOURCE = Path(headwater.__file__).resolve().parent
PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
ROOMS = {"lane.py": "federation/send/lane.py", "letter.py": "channel/routing/letter.py",
         "route.py": "channel/routing/route.py"}  # fmt: skip
COMPILED = ("native/", "match/matching.py")  # no Python is run there for an event


class Reading(Event):
    level: f64


def walk(title: str) -> list[list[str]]:
    """The files of each row of a table of the page; those in brackets left out."""
    text = PAGE.read_text(encoding="utf-8")
    table = next(each for each in text[text.index(title) :].split("\n\n") if each.startswith("| | file"))
    rows = []
    for line in table.splitlines()[2:]:
        files = re.findall(r"`([a-z_/]+\.py)`", line.split("|")[2])
        rows.append([ROOMS.get(each, each) for each in files])
    return rows


class Tracks:
    """Where threads were, file by file, while this is in force."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        file = frame.f_code.co_filename
        if self.on and event == "call" and file.startswith(str(SOURCE)):
            name = str(Path(file).relative_to(SOURCE))
            if not self.seen or self.seen[-1] != name:
                self.seen.append(name)

    def came_by(self, files: list[str]) -> bool:
        """Whether all of these were met, in this order; others may have been between them."""
        seen: Iterator[str] = iter(list(self.seen))
        return all(each in seen for each in files)


@contextmanager
def tracking() -> Iterator[Tracks]:
    tracks = Tracks()
    threading.setprofile(tracks)  # of threads that begin from now on: those of the nodes
    sys.setprofile(tracks)
    try:
        yield tracks
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def follow(tracks: Tracks, nodes: Nodes, subscribe: Callable[[Any, Any, Callable[[Any], None]], None]) -> list[str]:
    """The way of one event, between two nodes that have nothing else to do."""
    arrived = threading.Event()

    def handler(event: Reading) -> None:
        tracks.on = False
        arrived.set()

    lab, desk = nodes("lab"), nodes("desk")
    source = lab.channel("machines", Reading).source("s")
    subscribe(lab, desk, handler)
    nodes.ready(desk)
    for _ in range(3):  # the first ones make machine code, and tell of the source
        source.publish(Reading(level=0.7))
        assert arrived.wait(GUARD) and lab.flush(GUARD)
        arrived.clear()
    tracks.seen.clear()
    tracks.on = True
    source.publish(Reading(level=0.7))
    assert arrived.wait(GUARD)
    return list(tracks.seen)


def visible(rows: list[list[str]]) -> list[str]:
    """What a profiler can see of a walk: what is no machine code."""
    return [each for row in rows for each in row if not each.startswith(COMPILED)]


def test_the_fast_path_is_the_one_on_the_page(make: Nodes) -> None:
    rows = walk("**The fast path**")
    files = {each for row in rows for each in row}
    assert len(files) <= 10
    with tracking() as tracks:
        seen = follow(tracks, make, lambda lab, desk, handler: desk.channel("machines", Reading).subscribe(handler))
    expected = [each for each in visible(rows) if each != "channel/source.py"]  # shadowed by machine code
    assert tracks.came_by(expected), seen


def test_the_slow_path_is_the_one_on_the_page(make: Nodes) -> None:
    rows = walk("**The slow path**")
    files = {each for row in rows for each in row}
    assert len(files) <= 15

    def subscribe(lab: Any, desk: Any, handler: Callable[[Any], None]) -> None:
        lab.channel("machines").subscribe(lambda event: None)
        desk.channel("machines", Reading).subscribe(handler, "level > 0.5")
        desk.channel("machines", Reading).subscribe(lambda event: None)

    with tracking() as tracks:
        seen = follow(tracks, make, subscribe)
    assert tracks.came_by(visible(rows)), seen


def test_an_interest_goes_the_way_on_the_page(make: Nodes) -> None:
    rows = walk("## One interest")
    files = {each for row in rows for each in row}
    assert len(files) <= 25
    with tracking() as tracks:
        lab, desk = make("lab"), make("desk")
        lab.channel("machines", Reading).source("s")
        machines = desk.channel("machines", Reading)
        make.together()
        tracks.on = True
        machines.subscribe(print, "level > 0.5")
        make.ready(desk)
        tracks.on = False
    assert tracks.came_by(visible(rows)), tracks.seen


def test_an_event_of_a_pattern_goes_the_way_on_the_page(make: Nodes) -> None:
    rows = walk("## One event of a pattern")
    files = {each for row in rows for each in row}
    assert len(files) <= 25
    found = threading.Event()

    def handler(match: Any) -> None:
        tracks.on = False
        found.set()

    with tracking() as tracks:
        lab, desk = make("lab"), make("desk")
        source = lab.channel("machines", Reading).source("s")
        desk.channel("machines", Reading).source("t")  # so that it runs at the desk, and has two sources to wait for
        make.together()
        desk.pattern("rises", "a: machines{level > 0.5} -> b: machines{level > a.level} within 1 minute")
        desk.channel("rises").subscribe(handler)
        make.ready(desk)
        for level in (0.6, 0.7, 0.8):  # the first ones make machine code
            found.clear()
            source.publish(Reading(level=level))
            assert level == 0.6 or found.wait(GUARD)
        assert lab.flush(GUARD)
        found.clear()
        tracks.seen.clear()
        tracks.on = True
        source.publish(Reading(level=0.9))
        assert found.wait(GUARD)
    assert tracks.came_by(visible(rows)), tracks.seen
