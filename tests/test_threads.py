"""No thread of Headwater ends without anybody noticing."""

from __future__ import annotations

import ast
import logging
import threading
from pathlib import Path

import pytest

import headwater
import headwater_studies
from headwater import Node
from headwater.store.log.background import Worker as LogWorker
from headwater.threads import PROCESS, Crashes, Supervised, Worker
from tests.federation.nodes import eventually

SOURCES = [Path(package.__file__).parent for package in (headwater, headwater_studies)]
GUARD = 120.0
# Where threads may be made in another way, and why nothing is lost there.
JUSTIFIED = {
    ("threads.py", "Thread"): "what supervises",
    ("federation/worker_pool.py", "ThreadPoolExecutor"): "what is submitted is guarded: `Scheduler.guarded`",
    ("federation/order/election.py", "ThreadPoolExecutor"): "what fails is noted: `Electorate._ask`",
    ("federation/security/user_keys.py", "ThreadPoolExecutor"): "every result is taken",
    ("bridges/web/serving.py", "ThreadPoolExecutor"): "every result is awaited: `Serving.work`",
    ("bridges/nats.py", "ThreadPoolExecutor"): "every result is awaited: `NatsBridge._took`",
    ("native/batch.py", "ThreadPoolExecutor"): "every result is taken",
    ("study/player.py", "ThreadPoolExecutor"): "every result is taken",
}
MAKERS = {"Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "start_new_thread"}


def test_every_thread_is_supervised() -> None:
    found = set()
    for path in (path for folder in SOURCES for path in folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not any(maker in text for maker in MAKERS):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                called = node.func
            elif isinstance(node, ast.ClassDef):
                called = next((base for base in node.bases if getattr(base, "attr", "") == "Thread"), None)
            else:
                continue
            name = getattr(called, "attr", getattr(called, "id", ""))
            if name in MAKERS:
                module = getattr(getattr(called, "value", None), "id", "")
                if name != "Timer" or module == "threading":  # there are timers of channels, which are no threads
                    found.add((_short(path), name))
    assert found == set(JUSTIFIED), "use headwater.threads.Supervised, or say here why nothing is lost"


def _short(path: Path) -> str:
    """From its package on."""
    return next(path.relative_to(folder).as_posix() for folder in SOURCES if path.is_relative_to(folder))


class Boom(BaseException):
    """Not even an Exception, as is a panic in foreign code."""


def test_a_body_that_raises_is_counted_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    crashes, calls, done = Crashes(), [], threading.Event()

    def body() -> None:
        calls.append(1)
        if len(calls) <= 3:
            raise Boom(f"number {len(calls)}")
        done.set()

    with caplog.at_level(logging.ERROR):
        thread = Supervised(body, "a-loop", crashes, again=lambda: True)
        thread.start()
        assert done.wait(GUARD)
        thread.join(GUARD)
    assert crashes.counts == {"a-loop": 3} and crashes.last == {"a-loop": "Boom: number 3"}
    assert "Traceback" in caplog.text and "a-loop failed" in caplog.text


def test_a_body_that_raises_once_ends_and_says_so() -> None:
    crashes = Crashes()
    thread = Supervised(lambda: 1 // 0, "once", crashes)
    thread.start()
    thread.join(GUARD)
    assert not thread.is_alive() and crashes.counts == {"once": 1}


def test_names_of_failures_are_bounded() -> None:
    crashes = Crashes()
    for number in range(1000):
        crashes.note(f"name {number}", ValueError())
    assert len(crashes.counts) <= 257 and sum(crashes.counts.values()) == 1000


def test_workers_go_on_after_what_they_do_has_failed() -> None:
    crashes, done = Crashes(), threading.Event()
    worker = Worker("w", 10, crashes=crashes)
    worker.start()

    def fail() -> None:
        raise Boom

    worker.put(fail)
    worker.put(done.set)
    assert done.wait(GUARD)
    worker.stop()
    assert crashes.counts == {"w": 1}


def test_the_log_goes_on_after_a_job_has_failed() -> None:
    done, before = threading.Event(), PROCESS.counts.get("test-log", 0)
    worker = LogWorker("test-log")

    def fail() -> None:
        raise Boom

    worker.after(0.0, fail)
    worker.after(0.01, done.set)
    assert done.wait(GUARD)
    assert PROCESS.counts["test-log"] == before + 1


def test_a_failure_in_a_thread_shows_in_the_reports() -> None:
    with Node("lab", listen="tcp/127.0.0.1:0") as node:
        assert node.federation_report().crashes.get("headwater-lab-keeper") is None

        def fail() -> None:
            raise Boom("bad luck")

        assert node._engine is not None
        node._engine.scheduler.later(0.0, fail)
        eventually(lambda: any("Boom: bad luck" in note for note in node.report().notes), "the report")
        assert any("headwater-lab: " in name and "fail" in name for name in node.federation_report().crashes)
        assert "failed in threads" in str(node.federation_report())
        done = threading.Event()
        node._engine.scheduler.later(0.0, done.set)
        assert done.wait(GUARD)
