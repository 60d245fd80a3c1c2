"""Progress: a bar on a terminal, lines elsewhere, silence where it is asked for."""

from __future__ import annotations

import io
import re

import pytest

from headwater.store.log.progress_bar import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def drawn(self) -> list[str]:
        """What was shown, one drawing after the other, without colours."""
        found = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", self.getvalue()).split("\r")
        return [each for each in found if " of " in each]


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWATER_PROGRESS", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")


def test_a_terminal_gets_a_bar_that_ends_its_line() -> None:
    stream = Terminal()
    with Progress(200, "replay", "events", stream) as progress:
        progress.add(50)
        progress.add(150)
    drawn = stream.drawn()
    assert re.match(r"replay: ━{7}╸─{22} +25% 50 of 200 events, ", drawn[0])
    assert drawn[-1].startswith("replay: 100% 200 of 200 events") and drawn[-1].endswith("in all\n")


@pytest.mark.parametrize("environment", [{"COLUMNS": "20"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_the_last_line_is_whole_on_any_terminal(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    with Progress(200, "replay", "events", stream) as progress:
        progress.add(200)
    last = stream.drawn()[-1]
    assert last.startswith("replay: 100% 200 of 200 events, ") and last.endswith(" in all\n")
    if "TERM" in environment:
        assert "\x1b" not in stream.getvalue()
    assert not re.search(r"\x1b\[\d*m", stream.getvalue()) or not environment.keys() & {"NO_COLOR", "TERM"}


def test_who_stops_watching_stops_nothing() -> None:
    stream = Terminal()
    with Progress(200, "replay", "events", stream) as progress:
        progress.add(1)
        stream.close()
        progress._next = 0.0
        progress.add(199)
    assert progress.done == 200


def test_elsewhere_only_the_end_is_told_of_what_is_quick() -> None:
    stream = io.StringIO()
    with Progress(None, "scan", "rows", stream) as progress:
        for _ in range(1000):
            progress.add()
        progress.close()
    assert stream.getvalue().startswith("scan: 1,000 rows, ") and stream.getvalue().count("\n") == 1


def test_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_PROGRESS", "0")
    stream = Terminal()
    with Progress(10, "scan", "rows", stream) as progress:
        progress.add(10)
    assert stream.getvalue() == "" and progress.done == 10


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_foreseen_before_there_is_evidence() -> None:
    stream, clock = Terminal(), Clock()
    with Progress(35_811, "replay", "events", stream, clock) as progress:
        for seconds, count in ((1.0, 13), (1.5, 13), (0.5, 1_000), (3.0, 10_000), (3.0, 24_785)):
            clock.now += seconds
            progress.add(count)
    first, second, third, fourth, *_ = stream.drawn()
    assert "left" not in first and first.rstrip().endswith("1.0 s so far"), "not 45 minutes"
    assert "left" not in second, "long enough, but hardly anything is done"
    assert "left" in third and "left" in fourth
    assert "13.5 s left" in fourth  # 24,785 at 11,026 in 6 s


def test_what_is_quick_at_first_is_not_foreseen_either() -> None:
    stream, clock = Terminal(), Clock()
    with Progress(100, "replay", "events", stream, clock) as progress:
        clock.now += 0.5
        progress.add(50)
        assert "left" not in stream.getvalue()
        clock.now += 2
        progress.add(10)
        assert "left" in stream.getvalue()


def test_preparation_is_told_apart() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress(200, "play", "events", stream, clock) as progress:
        clock.now += 24.9
        progress.begin("of joining nodes")
        clock.now += 1.7
        progress.add(200)
        clock.now += 3  # of closing what was opened
    assert stream.getvalue() == "play: 100% 200 of 200 events, 118/s, in 1.7 s after 24.9 s of joining nodes\n"
