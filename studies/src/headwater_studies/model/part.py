"""A model of larger federations than can be run here, as a Spark job over a recorded log."""

from __future__ import annotations

from pathlib import Path

from headwater.errors import ExecutionError
from headwater.extras import how_to_install, installed
from headwater_studies.harness.bench import Bench, Found

TITLE = "larger federations, a model"


def model(bench: Bench, *, log: Path | None = None, subscriptions: Path | None = None) -> Found:
    """Federations of up to a million nodes. With `log` and `subscriptions` (a file as for a backtest) they are made of
    these instead of the badge day and its subscribers."""
    if not installed("spark"):
        return Found(not_run={TITLE: f"PySpark is not installed; {how_to_install('spark')}"})
    # They import Spark, which need not be there.
    from headwater_studies.model.run import modelled

    try:
        return modelled(bench, log=log, subscriptions=subscriptions)
    except ExecutionError as error:
        if "Java" not in str(error):
            raise
        return Found(not_run={TITLE: str(error)})
