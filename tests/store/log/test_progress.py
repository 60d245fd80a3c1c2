"""Progress: a bar on a terminal, lines elsewhere, silence where it is asked for."""

from __future__ import annotations

import io

import pytest

from headwater.store.log.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_that_ends_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWATER_PROGRESS", raising=False)
    stream = Terminal()
    with Progress(200, "replay", "events", stream) as progress:
        progress.add(50)
        progress.add(150)
    drawn = stream.getvalue().split("\r")
    assert "25% 50 of 200 events" in drawn[1] and "[#######......................." in drawn[1]
    assert "100% 200 of 200 events" in drawn[-1] and drawn[-1].endswith("in all\n")


def test_elsewhere_only_the_end_is_told_of_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWATER_PROGRESS", raising=False)
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
