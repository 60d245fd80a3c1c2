"""The commands of the federation, as a user calls them: processes that find each other, and errors of one line."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import pytest

from headwater import Config, Node
from headwater.cli import main
from headwater.errors import FederationError
from headwater.federation.command import command as commands
from headwater.federation.command.command import await_sinks
from headwater.federation.command.json_lines import from_line, to_line
from headwater.interest import as_event_type
from headwater.security import Security
from headwater.signals import End
from headwater.types import EventType, event_type
from tests.federation.nodes import Log
from tests.federation.nursery import Popen, run
from tests.ports import free_port

GUARD = 240
TYPE = "level: f64, network: text?, at: timestamp?, raw: bytes?"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "headwater.cli", *arguments]


@contextmanager
def running(*arguments: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, which is over at the end."""
    process = Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=GUARD)


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


@contextmanager
def hub(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`headwater node`, and where it listens."""
    with running("node", "--name", "hub", "--listen", "tcp/127.0.0.1:0", *arguments) as process:
        said = line(process.stdout)
        found = re.search(r"listens at (\S+?),", said)
        assert found is not None, said
        yield process, found[1]


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith(f"headwater {arguments[0]}: ")
    return said.err


def test_events_from_one_command_to_another_through_a_node() -> None:
    with hub() as (node, endpoint):
        interest = ("--where", "level > :limit", "--param", "limit=0.5")
        with running(
            "listen", "ie.tcd.level", *interest, "--count", "2", "--connect", endpoint, "--name", "ear", "--wait", "60"
        ) as ear:
            assert line(node.stdout).startswith("joined ear (ear.")
            events = [
                {"level": 0.75, "network": "ORL-Net#1"},
                {"level": 0.25},
                {"level": 1.0, "at": "2026-01-31T12:00Z"},
            ]
            text = "\n".join(json.dumps(event) for event in events) + "\n\n"
            sent = run(
                command(
                    "publish", "ie.tcd.level", "--type", TYPE, "--connect", endpoint, "--name", "mouth", "--wait", "60"
                ),
                given=text, capture_output=True, text=True, timeout=GUARD,
            )  # fmt: skip
            assert (sent.returncode, sent.stderr) == (0, "published 3 events\n")
            out, err = ear.communicate(timeout=GUARD)
            assert ear.returncode == 0, err
            assert [json.loads(each) for each in out.splitlines()] == [
                {"level": 0.75, "network": "ORL-Net#1", "at": None, "raw": None},
                {"level": 1.0, "network": None, "at": "2026-01-31T12:00:00+00:00", "raw": None},
            ]
        assert line(node.stdout).startswith("joined mouth (mouth.")
        assert line(node.stdout).startswith("left ")
        node.send_signal(signal.SIGTERM)
        out, err = node.communicate(timeout=GUARD)
        assert node.returncode == 0 and "node hub leaves" in out and err == ""


def test_a_node_from_a_file_and_its_key_stays(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text('[network]\nlisten = "tcp/127.0.0.1:0"\nfederation = "lab"\nlease = 2.0\n')
    ids = []
    for _ in range(2):
        arguments = (
            "node",
            "--name",
            "hub",
            "--config",
            str(config),
            "--state",
            str(tmp_path / "state"),
            "--no-router",
        )
        with running(*arguments) as process:
            said = line(process.stdout)
            assert " of lab listens at tcp/127.0.0.1:" in said
            ids.append(said.split()[2])
            process.send_signal(signal.SIGINT)
            assert process.wait(GUARD) == 0
    assert ids[0] == ids[1] and ids[0].startswith("(hub.")


def test_an_interest_that_is_refused_is_said(tmp_path: Path) -> None:
    rules = tmp_path / "security.toml"
    rules.write_text('[[rules]]\nchannel = "**"\nwho = "*"\nmay = ["advertise"]\n')
    arguments = ("publish", "ie.tcd.level", "--type", TYPE, "--wait", "60", "--security", str(rules), "--connect")
    with hub() as (_, endpoint), running(*arguments, endpoint, stdin=subprocess.PIPE):
        ran = run(
            command("listen", "ie.tcd.level", "--connect", endpoint, "--wait", "60"),
            capture_output=True, text=True, timeout=GUARD,
        )  # fmt: skip
    assert ran.returncode == 2 and ran.stdout == ""
    assert "no source of ie.tcd.level takes the interest: not allowed" in ran.stderr.splitlines()[-1]


def test_lines_that_are_not_events(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with Node("hub", listen="tcp/127.0.0.1:0") as node:
        arguments = ["publish", "x", "--type", TYPE, "--connect", node.endpoints[0], "--wait", "0", "--allow-nobody"]
        for bad, why in (("{", "expected JSON"), ('{"level": "loud"}', "level"), ("[1]", "expected a JSON object")):
            given = io.BytesIO(f'{{"level": 1}}\n{bad}\n'.encode())
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given, encoding="utf-8"))
            assert main(arguments) == 2
            said = capsys.readouterr().err
            assert "line 2: " in said and why in said, said
            assert "Traceback" not in said


def publish_lines(monkeypatch: pytest.MonkeyPatch, lines: list[bytes], *arguments: str) -> tuple[int, list[Any]]:
    """The exit code of `headwater publish`, and what has come at a sink."""
    with Node("hub", listen="tcp/127.0.0.1:0") as node:
        got = Log()
        node.channel("ie.tcd.level", TYPE).subscribe(got)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n".join(lines)), encoding="utf-8"))
        code = main(["publish", "ie.tcd.level", "--connect", node.endpoints[0], "--wait", "60", *arguments])
        return code, got.field("level")


LINES = [b'{"level": 1}', b"", b'{"level": 2, "network": "\xff"}', b'{"level": "loud"}', b"{", b'{"level": 5}']


def test_a_line_that_is_no_event_stops_it_and_it_says_how_many_were_published(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish_lines(monkeypatch, LINES) == (2, [1.0])  # the type is known from the sink
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith("headwater publish: line 3: expected JSON"), said
    assert said.endswith("it stopped there and published 1 event (--bad-lines skip goes on)\n")


def test_lines_that_are_no_events_can_be_left_out_and_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    many = [*LINES, *[b"nonsense"] * 20]
    assert publish_lines(monkeypatch, many, "--bad-lines", "skip") == (3, [1.0, 5.0])
    said = capsys.readouterr().err.splitlines()
    assert [each.split(":")[1] for each in said[:3]] == [" line 3", " line 4", " line 5"] and len(said) == 11
    assert "level: expected a float or int, found str 'loud'" in said[1]
    assert said[-1] == "published 2 events; 23 lines were no event and left out"
    assert publish_lines(monkeypatch, [b'{"level": 1}'], "--bad-lines", "skip") == (0, [1.0])
    assert capsys.readouterr().err == "published 1 event\n"


def test_certificates(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    assert main(["certificates", "authority", str(folder)]) == 0
    assert (
        main(["certificates", "issue", str(folder), "dublin", "--host", "dublin.example.org", "--group", "staff"]) == 0
    )
    assert "dublin.pem" in capsys.readouterr().out
    security = Security(
        certificate=folder / "dublin.pem", key=folder / "dublin.key", authority=folder / "authority.pem"
    )
    assert security.identity().name == "dublin"
    assert (folder / "authority.key").stat().st_mode & 0o077 == 0
    assert "no file yet" in failure(capsys, "certificates", "authority", str(folder))
    assert "an authority" in failure(capsys, "certificates", "issue", str(tmp_path), "lab")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["node", "--listen", "tcp/0.0.0.0:0"], "only endpoints of this machine"),
        (["node", "--listen", "nonsense"], "nonsense"),
        (["node", "--config", "/does/not/exist.toml"], "/does/not/exist.toml"),
        (["node", "--security", "/does/not/exist.toml"], "/does/not/exist.toml"),
        (["listen", "a"], "--connect, --listen or --scout"),
        (["listen", "a", "--listen", "tcp/127.0.0.1:0", "--wait", "0"], "channel 'a': expected one that a node"),
        (["listen", "a", "--listen", "tcp/127.0.0.1:0", "--type", "x: f33"], "f33"),
        (["publish", "a", "--listen", "tcp/127.0.0.1:0", "--wait", "0"], "give --type"),
    ],
)
def test_errors_are_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], part: str) -> None:
    if "f33" in part:
        assert main(arguments) == 2
        assert part in capsys.readouterr().err
    else:
        assert part in failure(capsys, *arguments)


@pytest.mark.parametrize("arguments", [["listen", "a", "--count", "-1"], ["publish", "a", "--wait", "soon"]])
def test_numbers_are_checked(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2 and "expected" in capsys.readouterr().err


def test_lines_of_json_give_back_what_they_were_made_of() -> None:
    import enum

    from headwater import Array, Event, f32, timestamp, u8

    class Colour(enum.Enum):
        red = 1
        blue = 2

    class Part(Event):
        n: u8

    class Whole(Event):
        at: timestamp
        raw: bytes
        grid: Array[f32, 2, 3]
        parts: list[Part]
        colour: Colour
        level: float
        note: str | None

    kind = event_type(Whole)
    plain = {
        "at": "2026-01-31T12:00:00.000001+00:00",
        "raw": "AP8=",
        "grid": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
        "parts": [{"n": 1}, {"n": 2}],
        "colour": "blue",
        "level": "Infinity",
        "note": None,
    }
    made = kind.cls(**from_line(kind, json.dumps(plain)))
    assert json.loads(to_line(kind, made)) == plain
    assert from_line(None, to_line(None, b"\x00\xff")) == b"\x00\xff"


def test_what_is_no_line_of_an_event() -> None:
    from headwater.errors import EncodeError

    kind: EventType = as_event_type(TYPE)
    for bad in (
        "",
        "nonsense",
        "[]",
        '"x"',
        '{"level": 1, "at": "yesterday"}',
        '{"level": 1, "raw": "?"}',
        "[" * 100_000,
    ):
        with pytest.raises(EncodeError):
            from_line(kind, bad)


def publish_one(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"level": 1.0}\n'))
    return main(["publish", "ie.tcd.level", "--type", TYPE, *arguments])


def test_publishing_to_nobody_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert publish_one(monkeypatch, "--connect", str(port), "--wait", "0.1") != 0
    said = capsys.readouterr().err
    assert "no other node is there" in said and str(port) in said and "nothing is published" in said
    assert "published 1" not in said


def test_publishing_to_nodes_that_have_not_subscribed_fails_unless_that_is_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Node("hub", listen=0) as hub, Node("mouth", connect=hub.endpoints) as mouth:
        assert mouth.until(lambda: mouth.peers == ["hub"], GUARD)
        with pytest.raises(FederationError) as caught:
            await_sinks(mouth, ["ie.tcd.level"], 0.0, End(), command="publish", allow_nobody=False)
        assert "nobody has subscribed to ie.tcd.level" in str(caught.value)
        assert "1 other node is there: hub" in str(caught.value) and "nothing is published" in str(caught.value)
        where = ("--connect", hub.endpoints[0])
        assert publish_one(monkeypatch, *where, "--wait", "0") != 0
        assert "published 1" not in capsys.readouterr().err
        assert publish_one(monkeypatch, *where, "--wait", "0.1", "--allow-nobody") == 0
        assert "published 1 event" in capsys.readouterr().err


def test_replaying_to_nobody_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Node("lab", log=tmp_path / "log") as lab:
        lab.channel("ie.tcd.level", "level: f64").source().publish(level=1.0)
    arguments = ["replay", str(tmp_path / "log"), "--wait", "0.1", "--connect", str(free_port())]
    assert main(arguments) != 0
    said = capsys.readouterr()
    assert "nothing is published" in said.err and "replayed" not in said.out
    assert main([*arguments, "--allow-nobody"]) == 0
    assert "replayed 1 events" in capsys.readouterr().out


def test_matches_of_a_pattern_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    words = "a: ie.tcd.door; b: Door{who != a.who} within :t lateness 1 s measures a.who as who, b.who as behind"
    with hub() as (node, endpoint), Node("mouth", connect=endpoint, config=Config(history=10)) as mouth:
        door = mouth.channel("ie.tcd.door", "who: text").source()
        for who in ("Ann", "Ann"):
            door.publish(who=who)
        arguments = ("--alias", "Door=ie.tcd.door", "--param", "t=600", "--count", "1", "--connect", endpoint)
        arguments += ("--history", "10")
        with running("listen", "--pattern", words, *arguments, "--name", "ear", "--wait", "60") as ear:
            await_sinks(mouth, ["ie.tcd.door"], GUARD, End(), command="publish", allow_nobody=False)
            door.publish(who="Bob")
            out, err = ear.communicate(timeout=GUARD)
            assert ear.returncode == 0, err
            assert [(found["who"], found["behind"]) for found in map(json.loads, out.splitlines())] == [("Ann", "Bob")]
            warned = r"^headwater listen: warning: .*: lateness has no meaning without time"
            assert len(re.findall(warned, err, re.MULTILINE)) == 1, err
            assert "HeadwaterWarning" not in err
        node.send_signal(signal.SIGTERM)
        node.communicate(timeout=GUARD)


def test_whom_a_pattern_waits_for_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(commands, "HELD_SECONDS", 0.0)
    with Node("ear", listen=0) as ear, Node("mouth", connect=ear.endpoints) as mouth:
        source = mouth.channel("ie.tcd.level", "at: timestamp, level: f64").source("silent")
        assert ear.until(lambda: bool(ear.remote_sources("ie.tcd.level")), GUARD)
        watch = ear.match("a: ie.tcd.level -> b: ie.tcd.level within 1 minute time at")
        assert ear.ready(GUARD)
        source.publish(at=datetime(2030, 1, 1, tzinfo=UTC), level=1.0)
        waiting = commands.Waiting(watch)
        said = ""

        def is_said() -> bool:
            nonlocal said
            waiting.look()
            said += capsys.readouterr().err
            return ", of which nothing is known after " in said

        assert ear.until(is_said, GUARD)
        assert "headwater listen: waits for ie.tcd.level/silent@mouth" in said


def test_a_pattern_is_checked_before_anything_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    here = ["--listen", "tcp/127.0.0.1:0", "--wait", "0"]
    for arguments, expected in (
        (["--pattern", "a: nowhere", *here], "not all channels of the pattern are at 0 other nodes, in 0 s (--wait)"),
        (["--pattern", "a: headwater.nodes{", *here[:2], "--wait", f"{GUARD:d}"], "1 problem in this pattern"),
        (["--pattern", "a: x", "x", *here], "expected a channel or --pattern, and not both"),
        (here, "expected a channel or --pattern, and not both"),
        (["--pattern", "a: x", "--where", "v > 1", *here], "--where and --type are for a channel"),
    ):
        assert main(["listen", *arguments]) == 2
        assert expected in capsys.readouterr().err
