"""`headwater interests`, as a user calls it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Node
from headwater.cli import main
from tests.federation.nodes import GUARD, Nodes, nodes

DOOR = "who: text, level: f64"
CHANNEL = "t.door"


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


class Command:
    """The command, with a node to connect to, and what it has printed."""

    def __init__(self, node: Node, capsys: pytest.CaptureFixture[str]) -> None:
        self._node, self._capsys = node, capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        found = main(["interests", *arguments, "--connect", self._node.endpoints[0]])
        out, err = self._capsys.readouterr()
        assert found == code, (found, out, err)
        return out + err


def test_from_publishing_to_going_back(make: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab, desk = make("lab", log=tmp_path / "log"), make("desk")
    east = lab.channel(CHANNEL, DOOR).source("east")
    assert desk.until(lambda: desk.has_channel(CHANNEL), GUARD)
    run, state = Command(lab, capsys), ("--at", "lab", "--state", str(tmp_path / "me"))
    over = ("--channel", CHANNEL, "--param", "limit=0.5")
    assert "a key that is kept" in run("publish", "loud", "level > :limit", *over, "--at", "lab", code=2)
    assert run("publish", "loud", "level > :limit", *over, *state, "--note", "what is loud").startswith(
        "@loud/1 interest"
    )
    assert run("publish", "loud", "level > :limit and who != 'cat'", *over, *state).startswith("@loud/2 ")
    assert "a version never changes" in run("publish", "loud", "true", "--type", DOOR, "--version", "1", *state, code=2)
    assert "--channel or --type" in run("publish", "loud", "true", *state, code=2)
    trigger = tmp_path / "low.toml"
    trigger.write_text('on = "stock/acme"\nwhen = "becomes"\nwhere = "new.price < 90"\nnotify = ["new.price"]\n')
    assert "@low/1 trigger" in run("publish", "low", "--trigger", "--file", str(trigger), *state)
    text = "a: t.door; b: t.door{who != a.who} within 2 seconds"
    assert "@tail/1 pattern" in run("publish", "tail", text, "--pattern", *state)
    names = run("names")
    assert all(name in names for name in ("@loud/1", "@loud/2", "@low/1", "@tail/1")) and "what is loud" in names
    shown = run("show", "@loud/1")
    assert "over Event(who: text, level: f64)" in shown and ":limit = 0.5" in shown and "version 2 at lab" in shown

    desk.library.use("lab")
    heard = desk.channel(CHANNEL).subscribe(where="@loud/1", params={"limit": 0.7}, name="heard")
    make.ready(desk)
    for level in (0.6, 0.8):
        east.publish(who="cat", level=level)
    assert heard.get(timeout=GUARD).level == 0.8
    rows = [json.loads(line) for line in run("list", "--json").splitlines()]
    [at_lab] = [row for row in rows if row["node"] == "lab"]
    assert (at_lab["what"], at_lab["evaluated"], at_lab["passed"]) == ("@loud/1", 2, 1) and at_lab["asked_by"][
        :5
    ] == "desk:"
    table = run("--channels", "t.**")
    assert "desk: subscription heard" in table and "@loud/1" in table

    listen = ["listen", CHANNEL, "--where", "@loud/1", "--history", "9", "--count", "2", "--connect", lab.endpoints[0]]
    assert main(listen) == 0 and [json.loads(line)["level"] for line in capsys.readouterr()[0].splitlines()] == [
        0.6,
        0.8,
    ]

    told = run("upgrade", "@loud/2", "--at", "desk")
    assert "t.door/east@lab" in told and "acknowledged" in told
    east.publish(who="cat", level=0.9)
    assert "nothing runs another version" in run("upgrade", "@loud/2")
    assert "acknowledged" in run("upgrade", "@loud/1")
    east.publish(who="cat", level=0.8)
    assert heard.get(timeout=GUARD).level == 0.8
    assert "withdrawn at lab" in run("withdraw", "@loud/2", "it was too quiet", *state)
    assert "it was too quiet" in run("upgrade", "@loud/2", code=2)
    assert "withdrawn: it was too quiet" in run("names")
    assert "found none" in run("show", "@loud/7", code=2) and "expected a version" in run("show", "@loud/x", code=2)
    lab.channel(CHANNEL).close()  # its log comes to rest
    assert "only by @loud/1" in run("diff", "@loud/1", "@loud/1", "--log", str(tmp_path / "log"), "--channel", CHANNEL)


def test_what_others_say_does_not_command_the_terminal(make: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    lab = make("lab")
    lab.library.publish("loud", "level > 0.5", on=DOOR, note="\x1b[2Jgone\r\n\x07")
    for said in (Command(lab, capsys)("names"), Command(lab, capsys)("show", "@loud")):
        assert "\x1b" not in said and "\x07" not in said and "\r" not in said and "[2Jgone" in said


def test_rights_are_said_in_the_list(make: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    lab = make("lab")
    assert "nothing runs that this node may know of" in Command(lab, capsys)()
    assert "no library has anything" in Command(lab, capsys)("names")

    def broken(*_: Any) -> Any:
        raise ValueError("no")

    lab.library.listing.answer = broken  # type: ignore[method-assign]
    assert "lab: node lab" in Command(lab, capsys)(code=3)
