"""A stock alert: told when a price falls below a limit, once, not at every trade; and when it jumps within a minute.

Run it: `python examples/stock_alert.py`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from headwater import Event, Node
from headwater.errors import TransactionError
from headwater.objects import Computed, over
from headwater.testing import ManualClock, Recorder


class Stock(Event):
    price: float
    traded: int


class Desk(Event):
    alerts: int
    worst: float | None = None


def trade(node: Node, price: float) -> None:
    with node.objects.transaction() as t:
        t.update("stock/acme", price=price, traded=Computed("traded + 1"), event=True)


def main() -> None:
    clock = ManualClock()  # so that the example need not wait
    low, jumps = Recorder(), Recorder()
    with tempfile.TemporaryDirectory() as folder, Node("desk", state=Path(folder) / "state", clock=clock) as node:
        objects = node.objects
        objects.type("Stock", Stock)
        objects.type("Desk", Desk)
        with objects.transaction() as t:
            t.create("stock/acme", "Stock", price=100.0, traded=0)
            t.create("desk", "Desk", alerts=0)

        # 1. When the price becomes too low: the desk counts it, and whoever has subscribed is told.
        alert = objects.trigger(
            "low",
            on="stock/acme.price",
            when="becomes",
            where="new.price < :limit",
            params={"limit": 90.0},
            do=lambda t: t.update("desk", alerts=Computed("alerts + 1"), worst=t.new.price),
            notify={"price": "new.price", "was": "old.price"},
        )
        alert.subscribe(low)

        # 2. Whenever it has moved by more than 10 within a minute.
        objects.trigger(
            "jump",
            on="stock/acme",
            when="each",
            where="minute.max - minute.min > 10",
            history={"minute": over("new.price", "60 s")},
            notify={"from_": "minute.min", "to": "minute.max"},
        ).subscribe(jumps)

        # 3. No price is negative: the transaction that says so is refused.
        objects.trigger(
            "floor",
            on="stock/*",
            type="Stock",
            when="each",
            where="new.price < 0",
            coupling="within",
            veto="no such price",
        )

        for price in (95.0, 89.0, 88.0, 91.0):
            trade(node, price)
            clock.advance(30.0)
        for told in low.wait(1):
            print(f"below the limit: {told.price:g}, after {told.was:g}")
        try:
            trade(node, -1.0)
        except TransactionError as error:
            print(error.problems[0])

        # 4. Another limit, from an exact point on; then a fall.
        turn = alert.change(params={"limit": 85.0}).turn
        trade(node, 87.0)
        trade(node, 75.0)
        told = low.wait(2)[1]
        print(f"below the new limit: {told.price:g}, {told.turn - turn} turns after it was given")
        print(f"within a minute: from {jumps.wait(1)[0].to:g} to {jumps.events[0].from_:g}")
        desk = objects["desk"]
        print(f"{desk.alerts} alerts, the worst at {desk.worst:g}, in {objects['stock/acme.traded']} trades")
        print(alert.explain().splitlines()[2].strip())


if __name__ == "__main__":
    main()
