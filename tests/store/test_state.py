"""A node's state: what is written is there again, for one process at a time, however the last one ended."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import StoreError
from headwater.store import NodeState
from tests.effort import examples
from tests.federation.nursery import Popen, run

KEY = "lab.0123abcd/1700000000000000000/3"


def test_positions_are_there_again(tmp_path: Path) -> None:
    path = tmp_path / "lab.state"
    with NodeState(path) as state:
        assert state.positions("hall") == {} and state.sinks() == []
        state.commit("hall", KEY, 7)
        state.commit("hall", "other", 2**63 - 1)
        state.commit("door", KEY, 1)
    with NodeState(path) as state:
        assert state.positions("hall") == {KEY: 7, "other": 2**63 - 1}
        assert state.positions("door") == {KEY: 1}
        assert state.sinks() == ["door", "hall"]


def test_a_position_never_goes_back() -> None:
    with NodeState(":memory:") as state:
        for seq in (5, 3, 5, 6, 1):
            state.commit("hall", KEY, seq)
        assert state.positions("hall") == {KEY: 6}


def test_several_positions_are_written_at_once_or_not_at_all() -> None:
    with NodeState(":memory:") as state:
        state.commit_all("hall", {"a": 1, "b": 2})
        with pytest.raises(StoreError, match="sequence number, found 'x'"):
            state.commit_all("hall", {"a": 5, "b": "x"})  # type: ignore[dict-item]
        with pytest.raises(StoreError, match="cannot be read or written"):
            state.commit_all("hall", {"a": 5, "\ud800": 6})
        assert state.positions("hall") == {"a": 1, "b": 2}
        state.commit_all("hall", {"a": 2})
        state.commit_all("hall", {})
        assert state.positions("hall") == {"a": 2, "b": 2}


def test_what_was_handed_over_is_no_position() -> None:
    with NodeState(":memory:") as state:
        state.hand_all("hall", {"a": 9, "b": 3})
        state.commit("hall", "b", 3)
        assert state.positions("hall") == {"b": 3} and state.handed("hall") == {"a": 9, "b": 3}


def test_a_sink_is_forgotten_with_one_source_or_with_all() -> None:
    with NodeState(":memory:") as state:
        state.commit_all("hall", {"a": 1, "b": 2})
        state.commit("door", "a", 4)
        state.forget("hall", "a")
        assert state.positions("hall") == {"b": 2}
        state.forget("hall")
        assert state.positions("hall") == {} and state.positions("door") == {"a": 4}


@settings(deadline=None, max_examples=examples(40))
@given(
    st.lists(
        st.tuples(st.sampled_from(["x", "y"]), st.sampled_from("abc"), st.integers(1, 50), st.booleans()), max_size=30
    )
)
def test_positions_are_the_greatest_that_were_committed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("state") / "s"
    expected: dict[str, dict[str, int]] = {"x": {}, "y": {}}
    state = NodeState(path)
    for sink, source, seq, again in steps:
        state.commit(sink, source, seq)
        expected[sink][source] = max(seq, expected[sink].get(source, 0))
        if again:
            state.close()
            state = NodeState(path)
    assert {sink: state.positions(sink) for sink in expected} == expected
    state.close()


def test_secrets_are_kept_and_for_the_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "lab.state"
    with NodeState(path) as state:
        assert state.secret("key") is None
        state.keep("key", b"\0one")
        state.keep("key", bytearray(b"two"))
        state.keep("empty", b"")
        with pytest.raises(StoreError, match="expected a secret, found 'text'"):
            state.keep("key", "text")  # type: ignore[arg-type]
        with pytest.raises(StoreError, match="expected a name, found None"):
            state.keep(None, b"")  # type: ignore[arg-type]
    with NodeState(path) as state:
        assert state.secret("key") == b"two" and state.secret("empty") == b"" and state.secret("other") is None
    assert path.stat().st_mode & 0o077 == 0


def test_threads_share_it(tmp_path: Path) -> None:
    with NodeState(tmp_path / "s") as state:

        def work(sink: str) -> None:
            for seq in range(1, 301):
                state.commit(sink, KEY, seq)

        threads = [threading.Thread(target=work, args=(f"sink{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [state.positions(sink) for sink in state.sinks()] == [{KEY: 300}] * 4


# ── what cannot be opened ──


def test_a_file_has_one_owner_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lab.state"
    with NodeState(path) as state:
        with pytest.raises(StoreError, match=r"lab\.state.*no other node has open, found it in use; close that node"):
            NodeState(path)
        script = f"from headwater.store import NodeState\nNodeState({str(path)!r})"
        ended = run([sys.executable, "-c", script], capture_output=True, text=True)
        assert ended.returncode and "found it in use" in ended.stderr
        state.commit("hall", KEY, 1)  # who was refused has left no trace
    NodeState(path).close()


@pytest.mark.parametrize("path", ["", b"bytes", None, 3, "a\0b"])
def test_a_path_is_a_path(path: object) -> None:
    with pytest.raises(StoreError, match="expected the path of a file, or ':memory:', found"):
        NodeState(path)  # type: ignore[arg-type]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere/s.*can be made there, found: No such file.*; make the folder"):
        NodeState(tmp_path / "nowhere" / "s")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="expected the state of a node, found"):
        NodeState(tmp_path)


def test_what_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk " * 100)
    with pytest.raises(StoreError, match=r"notes\.txt.*expected the state of a node, found: file is not a database"):
        NodeState(path)
    assert path.read_text() == "remember the milk " * 100


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE goods (name TEXT)")
    other.close()
    with pytest.raises(StoreError, match="found another program's SQLite database; name another file"):
        NodeState(path)


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lab.state"
    NodeState(path).close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 1000")
    newer.close()
    with pytest.raises(StoreError, match="expected version 2 or older, found 1000, which a newer Headwater has writ"):
        NodeState(path)


def test_once_closed_it_says_so(tmp_path: Path) -> None:
    state = NodeState(tmp_path / "s")
    assert not state.closed
    state.close()
    state.close()
    assert state.closed and repr(state).startswith("<closed NodeState")
    for call in (lambda: state.commit("hall", KEY, 1), lambda: state.positions("hall"), lambda: state.keep("a", b"")):
        with pytest.raises(StoreError, match="expected it open, found it closed"):
            call()


@pytest.mark.parametrize("seq", [-1, 2**63, "3", 1.5])
def test_a_position_is_a_sequence_number(seq: object) -> None:
    with NodeState(":memory:") as state, pytest.raises(StoreError, match="expected a sequence number, found"):
        state.commit("hall", KEY, seq)  # type: ignore[arg-type]


# ── processes that end badly ──

COMMITTING = """
import sys
from headwater.store import NodeState
state = NodeState(sys.argv[1])
seq = state.positions("hall").get("far", 0)
while True:
    seq += 1
    state.keep("last", str(seq).encode()) if seq % 50 == 0 else None
    state.commit("hall", "far", seq)
    print(seq, flush=True)
"""


def test_what_was_committed_survives_a_kill_at_any_point(tmp_path: Path) -> None:
    path = tmp_path / "lab.state"
    printed = 0
    for lines in (1, 2, 60, 4500, 333):  # at 4000 pages the write-ahead log goes into the file
        command = [sys.executable, "-c", COMMITTING, str(path)]
        with Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(lines):
                printed = int(child.stdout.readline())
            os.kill(child.pid, signal.SIGKILL)
            for line in child.stdout:  # what it has said before it heard
                if line.endswith("\n"):
                    printed = int(line)
        with NodeState(path) as state:
            position = state.positions("hall")["far"]
            assert printed <= position <= printed + 1
            assert int(state.secret("last") or 0) in (position // 50 * 50, (position + 1) // 50 * 50)


def test_a_kill_while_it_is_made_leaves_a_file_that_opens(tmp_path: Path) -> None:
    script = """
import sys, itertools
from headwater.store import NodeState
for number in itertools.count():
    print(number, flush=True)
    NodeState(f"{sys.argv[1]}/{number}").close()
"""
    for round_ in range(3):
        folder = tmp_path / str(round_)
        folder.mkdir()
        command = [sys.executable, "-c", script, str(folder)]
        with Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(5 + round_):
                child.stdout.readline()
            os.kill(child.pid, signal.SIGKILL)
        for path in folder.iterdir():
            if path.name.isdigit():
                with NodeState(path) as state:
                    state.commit("hall", KEY, 1)


FORKING = """
import os, sys
from headwater.errors import StoreError
from headwater.store import NodeState
state = NodeState(sys.argv[1])
state.commit("hall", "far", 1)
child = os.fork()
if child == 0:
    try:
        state.commit("hall", "far", 99)
    except StoreError:
        sys.exit(7)  # through the whole end of the interpreter, which must leave the file alone
    sys.exit(8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
for seq in range(2, 5000):
    state.commit("hall", "far", seq)
os._exit(0)
"""


def test_a_forked_process_leaves_its_parents_state_alone(tmp_path: Path) -> None:
    path = tmp_path / "lab.state"
    ended = subprocess.run([sys.executable, "-c", FORKING, str(path)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    with NodeState(path) as state:
        assert state.positions("hall") == {"far": 4999}
