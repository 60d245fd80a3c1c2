"""What does the work of a backtest, for the command: this process, or Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headwater.errors import ConfigError, ConfigProblem
from headwater.extras import how_to_install, installed, require
from headwater.spark.session import running, session
from headwater.store.log.reader import ChannelReader


def engine_of(asked: str, events: Any, *, master: str | None, remote: str | None, most: int) -> str:
    """ "local" or "spark": as asked for, else by what is there; a log of up to `most` events needs no Spark."""
    cluster = "--master" if master is not None else "--remote" if remote is not None else None
    if cluster is not None and asked == "local":
        hint = f"leave out {cluster}, or say --engine spark"
        raise ConfigError([ConfigProblem("backtest: --engine local", "no Spark", cluster, hint)])
    if asked == "spark" or cluster is not None:
        require("spark", f"headwater backtest with {cluster or '--engine spark'}")
        return "spark"
    if asked == "auto" and running() is not None:
        return "spark"
    readers = events if isinstance(events, list) else [events]
    count = sum(
        _events(each) for each in readers if isinstance(each, ChannelReader)
    )  # else backtest says what is wrong
    if asked == "local" or count <= most:
        return "local"
    if installed("spark"):
        return "spark"
    sys.stderr.write(
        f"headwater backtest: {count:,} events in this process, since Spark is not installed; for all cores, or a "
        f"cluster: {how_to_install('spark')}\n"
    )
    return "local"


def _events(reader: ChannelReader) -> int:
    """How many events a log has, as its footers say."""
    return sum(file.rows for file in reader.files())


@contextmanager
def session_of(engine: str, master: str | None, remote: str | None) -> Iterator[Any]:
    """A session for the engine: None if it needs none; the one that runs, else one of our own, which is stopped."""
    here = None if engine == "local" else running()
    if engine == "local" or here is not None:
        yield here
        return
    spark = session("headwater backtest", master or "local[*]", remote=remote)
    try:
        yield spark
    finally:
        spark.stop()


__all__ = ["engine_of", "session_of"]
