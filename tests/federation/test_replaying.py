"""`headwater replay`: a log into a federation."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import StoreError
from headwater.federation.command.command import Joining
from headwater.federation.command.replay import add_replay
from headwater.federation.node import Node
from tests.store.log.logs import CHANNEL, DAY0, Logged, sighting


def call(*words: object) -> int:
    def add(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--connect", action="append", default=[])
        sub.add_argument("--wait", type=float, default=20.0)

    parser = argparse.ArgumentParser(prog="headwater")
    commands = parser.add_subparsers(dest="command", required=True)
    add_replay(commands, add, lambda args: Joining(name="replaying", connect=tuple(args.connect)))
    args = parser.parse_args(["replay", *map(str, words)])
    result: int = args.run(args)
    return result


def test_into_another_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Logged(tmp_path)
    log.rest("a", [sighting("a", "x", i, DAY0 + 1000 * i) for i in range(1, 201)])
    log.tail("b", [sighting("b", "x", i, DAY0 + 1000 * i + 5) for i in range(1, 201)])
    with Node("sink", listen="tcp/127.0.0.1:0") as node:
        heard: list[Any] = []
        node.channel(CHANNEL, log.type).subscribe(heard.append, "badge == 3", dispatch="inline")
        assert call(tmp_path, "--connect", node.endpoints[0], "--speed", "10") == 0
        expected = 2 * sum(i % 7 == 3 for i in range(1, 201))
        assert node.until(lambda: len(heard) == expected, 20)
        assert "replayed 400 events of 2 sources" in capsys.readouterr().out


def test_what_is_asked_wrongly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoreError, match="expected at least one channel in it, found none"):
        call(tmp_path)
    with pytest.raises(SystemExit):
        call(tmp_path, "--speed", "-1")
    assert "expected how many times faster" in capsys.readouterr().err
