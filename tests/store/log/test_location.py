"""The folder of a log, as people write it, wherever one is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater import Config, Log, Node
from headwater.cli import main
from headwater.errors import ConfigError, HeadwaterError, StoreError
from headwater.logs import replay
from headwater.spark.backtest import backtest
from headwater.spark.backtest.subscriptions import loads
from headwater.spark.live.options import read_options, write_options
from headwater.store.log import ChannelReader, LogFiles, channels
from headwater.store.log.location import local_folder

CHANNEL = "ie.tcd.sighting"
SUBSCRIPTIONS = '[[subscription]]\nname = "all"\nwhere = "level > 0"\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder; what is written as a relative path is elsewhere, and must stay empty."""
    made, elsewhere = tmp_path / "home of user", tmp_path / "elsewhere"
    made.mkdir()
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.chdir(elsewhere)
    return made


FORMS: list[Callable[[Path], str]] = [
    lambda home: "~/log",
    lambda home: (home / "log").as_uri(),
    lambda home: (home / "log").as_uri().replace("file:///", "file:/"),
    lambda home: (home / "log").as_uri().replace("file:///", "file://localhost/"),
    lambda home: (home / "log").as_uri().replace("file:", "FILE:"),
    lambda home: os.fspath(home / "log"),
]


@pytest.mark.parametrize("form", FORMS)
def test_a_local_folder_by_any_name_is_that_folder(
    home: Path, form: Callable[[Path], str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = form(home)
    with Node("lab", log=given) as node:
        node.channel(CHANNEL, "level: f64").source("hall").publish(level=1.0)
    assert (home / "log" / CHANNEL).is_dir() and not list(Path.cwd().iterdir())
    assert channels(given) == LogFiles(given).channels() == [CHANNEL]
    assert ChannelReader(given, CHANNEL).count() == 1
    assert main(["log", "list", given]) == 0 and CHANNEL in capsys.readouterr().out
    assert read_options({"log": given, "channel": CHANNEL}, streaming=True).place.log == str(home / "log")
    assert loads(f'log = "{given}"\n{SUBSCRIPTIONS}').log == home / "log"
    assert len(backtest(None, given, loads(f'type = "level: f64"\n{SUBSCRIPTIONS}')).subscriptions) == 1
    with Node("again") as node:
        assert replay(given, node, speed=None).events == 1


ASKED: dict[str, Callable[[str], Any]] = {
    "Log": Log,
    "Node": lambda given: Node("lab", log=given),
    "Config": lambda given: Config.of({"log": {"path": given}}),
    "LogFiles": LogFiles,
    "ChannelReader": lambda given: ChannelReader(given, CHANNEL),
    "channels": channels,
    "replay": lambda given: replay(given, Node("lab")),
    "backtest": lambda given: backtest(None, given, loads(SUBSCRIPTIONS)),
    "subscriptions": lambda given: loads(f'log = "{given}"\n{SUBSCRIPTIONS}'),
    "read option": lambda given: read_options({"log": given, "channel": CHANNEL}, streaming=False),
    "path option": lambda given: read_options({"path": given, "channel": CHANNEL}, streaming=True),
    "write option": lambda given: write_options(
        {"log": given, "channel": CHANNEL, "query": "q"}, streaming=True, overwrite=False
    ),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("given", ["s3://bucket/events", "hdfs:/events", "file://other.host/events", "~nobody9/events"])
def test_other_stores_are_refused_by_name(home: Path, asked: Callable[[str], Any], given: str) -> None:
    name = {"s": "s3", "h": "hdfs", "f": "other.host", "~": "~nobody9"}[given[0]]
    with pytest.raises(HeadwaterError, match=rf"a folder of this machine(.|\n)*found(.|\n)*'{name}'"):
        asked(given)
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize("words", [("log", "list"), ("replay",)])
def test_commands_refuse_them_too(home: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*words, "s3://bucket/events"])
    assert "'s3://bucket/events': expected a folder of this machine" in capsys.readouterr().err


def test_the_setting_stays_as_it_was_written(home: Path) -> None:
    config = Config.of({"log": {"path": "~/log"}})
    assert 'path = "~/log"' in config.to_toml()
    with pytest.raises(ConfigError, match="Log: path"):
        Log("gs://bucket/x")


def test_odd_names_that_are_paths(home: Path) -> None:
    for given in ("a:b", "./s3:/x", "./file:x"):
        with Node("lab", log=given) as node:
            node.channel(CHANNEL, "level: f64").source("hall").publish(level=1.0)
        assert ChannelReader(given, CHANNEL).count() == 1 and list(Path(given).rglob("*.parquet"))
    with pytest.raises(StoreError, match=r"\./s3:"):
        local_folder("s3:/x")
    for given in ("file:x", "file:", "file://", "file://localhost"):  # relative to what?
        with pytest.raises(StoreError, match="no path from the root"):
            local_folder(given)
