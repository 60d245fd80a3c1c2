"""A sink that is killed in the middle of its work, twice, and yet has every event once. Run it: `python
examples/durable.py`."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from headwater import Event, Network, Node, Reliable, u32

COUNT = 300
WAIT = 300.0  # seconds, at most, for what takes a moment
NETWORK = Network(
    listen=("tcp/127.0.0.1:0",),
    keep=600.0,  # seconds for which orders are kept for an archive that is away: 30, if this is not said
)


class Order(Event, name="shop.Order"):
    number: u32
    item: str


def archive(endpoint: str, folder: str, dies_at: str) -> None:
    """A process of its own: it writes every order into a database, until it is killed or all are there."""
    database = sqlite3.connect(f"{folder}/orders.db", check_same_thread=False)
    database.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER, item TEXT)")
    database.commit()

    def store(order: Order) -> None:
        database.execute("INSERT INTO orders VALUES (?, ?)", (order.number, order.item))
        if order.number == int(dies_at):
            os.kill(os.getpid(), signal.SIGKILL)  # before the transaction is committed

    # The node's key is in its state, so that it is known again; the position of the sink is in the handler's own
    # transaction, so that an order and "this order is done" are written together or not at all.
    with Node("archive", connect=endpoint, state=f"{folder}/archive.state") as node:
        orders = node.channel("shop.orders", Order)
        with orders.subscribe(store, name="archive", delivery=Reliable(within=database)):
            sys.stdin.read()  # until it is told to end


def main() -> None:
    with TemporaryDirectory() as folder, Node("shop", network=NETWORK) as shop:
        source = shop.channel("shop.orders", Order).source("till")
        command = [sys.executable, __file__, shop.endpoints[0], folder]

        def wanted() -> bool:
            return any(peer.installed and peer.link for peer in shop.federation_report().peers)

        number = 0
        for dies_at in (100, 200, 0):
            process = subprocess.Popen([*command, str(dies_at)], stdin=subprocess.PIPE)
            if not shop.until(wanted, WAIT):
                raise TimeoutError("the archive has not come")
            while number < min(dies_at + 50, COUNT) or (dies_at == 0 and number < COUNT):
                number += 1
                source.publish(number=number, item=f"item {number}")
            if dies_at:
                process.wait(WAIT)
                print(f"{number} orders published; the archive was killed while it handled order {dies_at}")
        if not shop.flush(WAIT):
            raise TimeoutError("the archive has not acknowledged all orders")
        process.communicate(timeout=WAIT)

        rows = (
            sqlite3.connect(Path(folder) / "orders.db").execute("SELECT number FROM orders ORDER BY rowid").fetchall()
        )
        numbers = [row[0] for row in rows]
        print(f"{len(numbers)} orders in the archive")
        print("each once and in order:", numbers == list(range(1, COUNT + 1)))


if __name__ == "__main__":
    if len(sys.argv) == 4:
        archive(*sys.argv[1:])
    else:
        main()
