"""Objects that follow a channel: `put`, names with fields of the event in them, and what cannot be a name."""

from __future__ import annotations

import pytest

from headwater import Event, Node
from headwater.errors import HeadwaterWarning, ObjectError, TransactionError
from headwater.objects import Computed
from headwater.testing import eventually


class Quote(Event):
    symbol: str
    price: float
    volume: int


def test_put_makes_an_object_or_updates_it() -> None:
    with Node("desk", state=":memory:") as node:
        objects = node.objects
        objects.type("Stock", "price: f64, traded: i64?")
        objects.type("Desk", "alerts: i64")
        ops: list[str] = []
        objects.changes("Stock").subscribe(lambda change: ops.append(change.op.name))
        with objects.transaction() as t:
            t.put("stock/acme", "Stock", price=1.0)
            t.put("stock/acme", "Stock", price=2.0, event=True)
            t.put("stock/acme", "Stock", {"traded": Computed("7")})
        assert (objects["stock/acme.price"], objects["stock/acme.traded"]) == (2.0, 7)
        with pytest.raises(TransactionError, match="of type 'Desk', or none, found one of"), objects.transaction() as t:
            t.put("stock/acme", "Desk", alerts=1)
        with pytest.raises(TransactionError, match="price"), objects.transaction() as t:
            t.put("stock/beta", "Stock", traded=1)  # nothing to make one of
        assert "stock/beta" not in objects
        eventually(lambda: len(ops) >= 2)
        assert ops == ["created", "updated"]


def test_objects_follow_a_channel() -> None:
    with Node("desk", state=":memory:") as node:
        objects = node.objects
        objects.type("Stock", "price: f64, seen: i64?")
        quotes = node.channel("quotes", Quote)
        mapping = objects.map_channel(quotes, "stock/{new.symbol}", type="Stock", where="new.volume >= :least",
                                      params={"least": 10})  # fmt: skip
        source = quotes.source()
        for symbol, price, volume in (("acme", 1.0, 10), ("beta", 2.0, 50), ("acme", 3.0, 99), ("acme", 9.0, 1)):
            source.publish(Quote(symbol, price, volume))
        objects.engine.drain(30)
        assert {kept.name: kept.value.price for kept in objects.list("stock/*")} == {
            "//desk/stock/acme": 3.0,
            "//desk/stock/beta": 2.0,
        }
        assert mapping.report()["fired"] == 3
        mapping.remove()
        source.publish(Quote("acme", 4.0, 10))
        objects.engine.drain(30)
        assert objects["stock/acme.price"] == 3.0


@pytest.mark.parametrize("symbol", ["a/b", "x.y", "", "..", "*", "a" * 65, "{object}"])
def test_an_event_cannot_choose_another_name_than_a_segment(symbol: str) -> None:
    with Node("desk", state=":memory:") as node:
        objects = node.objects
        objects.type("Stock", "price: f64")
        quotes = node.channel("quotes", Quote)
        mapping = objects.map_channel(quotes, "stock/{new.symbol}", type="Stock")
        source = quotes.source()
        source.publish(Quote(symbol, 1.0, 1))
        source.publish(Quote("good", 1.0, 1))
        objects.engine.drain(30)
        assert [kept.name for kept in objects.list()] == ["//desk/stock/good"]
        report = mapping.report()
        assert report["failed"] == 1 and "{new.symbol}: expected 1 to 64 letters" in report["failure"]


def test_what_is_wrong_with_a_mapping_is_told_when_it_is_made() -> None:
    with Node("desk", state=":memory:") as node:
        objects = node.objects
        objects.type("Lamp", "on: bool")
        objects.type("Stock", "price: f64")
        quotes = node.channel("quotes", Quote)
        with pytest.raises(ObjectError, match="expected fields that its events and type 'Lamp' both have"):
            objects.map_channel(quotes, "lamp/{new.symbol}", type="Lamp")
        with pytest.raises(TransactionError, match="did you mean 'symbol'"):
            objects.map_channel(quotes, "stock/{new.sybmol}", type="Stock")
        with pytest.raises(ObjectError, match="object name"):
            objects.map_channel(quotes, "stock/{new.symbol}//x", type="Stock")


def test_a_mapping_that_feeds_its_own_channel_is_warned_of() -> None:
    with Node("desk", state=":memory:") as node:
        objects = node.objects
        objects.type("Stock", "price: f64")
        quotes = node.channel("quotes", Quote)
        objects.map_channel(quotes, "stock/{new.symbol}", type="Stock")
        with pytest.warns(HeadwaterWarning, match="without end: echo -> quotes-to-Stock -> echo"):
            objects.trigger(
                "echo", on="stock/*", type="Stock", when="each",
                do=lambda t: t.publish("quotes", symbol="{name}", price=t.new.price, volume=1),
            )  # fmt: skip
