"""Words that may have been meant."""

from __future__ import annotations

import pytest

from headwater import Interest, Node
from headwater.errors import ConfigError, SubscriptionError, TypeDeclarationError
from headwater.spark.live.options import read_options
from headwater.spelling import did_you_mean, nearest


def test_nearest_names() -> None:
    known = ["ie.tcd.sighting", "ie.tcd.weather", "ie.ucd.sighting", "de.door"]
    assert nearest("ie.tcd.sightings", known)[0] == "ie.tcd.sighting"
    assert nearest("IE.TCD.Weather", known)[0] == "ie.tcd.weather"
    assert nearest("somewhere.else.entirely.door", known) == ["de.door"]
    assert nearest("q", known) == [] and nearest("q", []) == []
    assert len(nearest("ie.tcd.sighting", known, count=1)) == 1


def test_capitals_and_hyphens_do_not_matter_and_words_are_shown_as_they_are() -> None:
    known = ("drop_oldest", "maxEventsPerBatch", "Europe/Dublin")
    assert nearest("Drop-Oldst", known) == ["drop_oldest"]
    assert nearest("maxeventsperbatch", known) == ["maxEventsPerBatch"]
    assert did_you_mean("europe/dublni", known) == "did you mean 'Europe/Dublin'?"
    assert did_you_mean("drop", ("drop1", "drop2"), count=2, show=str) in (
        "did you mean drop1 or drop2?",
        "did you mean drop2 or drop1?",
    )


def test_what_is_like_nothing_or_no_word_asks_nothing() -> None:
    assert did_you_mean("quite other", ("level",)) is None
    assert did_you_mean(3, ("level",)) is None
    assert did_you_mean("levl", ("label", "level"), alike=0.95) is None


def test_words_of_a_strategy_a_notation_and_a_type() -> None:
    with Node("n") as node, pytest.raises(SubscriptionError, match="found 'Pol'; did you mean 'pool'\\?"):
        node.channel("a", "n: i64").subscribe(print, dispatch="Pol")
    with pytest.raises(ValueError, match="found 'pyton'; did you mean 'python'\\?"):
        Interest("n > 1", "n: i64", notation="pyton")  # type: ignore[arg-type]
    with pytest.raises(TypeDeclarationError, match="found 'Timestmp'; did you mean 'timestamp'\\?"):
        Interest("n > 1", "n: Timestmp")
    with pytest.raises(ConfigError, match="found 'pyton'; did you mean 'python'\\?"):
        read_options({"log": "x", "channel": "a", "where": "n > 1", "notation": "pyton"}, streaming=None)
