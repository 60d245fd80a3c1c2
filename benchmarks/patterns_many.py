"""Patterns on Spark over many events, and what crosses a federation for them: rows that studies measure.

Each of these modules has a function `rows(report, quick)`, which adds its rows to the report.
"""

from __future__ import annotations

from importlib import import_module

from headwater_studies.harness.benchmark import Report

SPARK, CROSSING = "headwater_studies.patterns.spark", "headwater_studies.patterns.crossing"


def spark(report: Report, quick: bool) -> None:
    """Window functions and runners in the workers, each beside the same written by hand."""
    import_module(SPARK).rows(report, quick)


def crossing(report: Report, quick: bool) -> None:
    """Bytes across a federation of 12 on the badge day, for tailgating and for the reactor room."""
    import_module(CROSSING).rows(report, quick)


__all__ = ["crossing", "spark"]
