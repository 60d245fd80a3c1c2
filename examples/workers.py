"""Work that is shared out: each event goes to one worker of a group, wherever it runs, and what one drops to another.

python examples/workers.py
"""

from collections import Counter

from headwater import Event, Node
from headwater.testing import eventually


class Order(Event):
    number: int
    total: float


def main() -> None:
    """A shop publishes orders, and three packers at other nodes share those that are worth it."""
    with (
        Node("shop", listen="tcp/127.0.0.1:0") as shop,
        Node("cellar", connect=shop.endpoints[0]) as cellar,
        Node("hall", connect=shop.endpoints[0]) as hall,
    ):
        source = shop.channel("orders", Order).source()
        packed: list[tuple[str, int]] = []
        marked: list[int] = []

        def packer(name: str):
            def pack(order: Order, about) -> None:
                packed.append((name, order.number))
                if about.redelivered:
                    marked.append(order.number)

            return pack

        # All members of a group want the same; it is judged in the shop, before anything crosses.
        members = [
            node.channel("orders", Order).subscribe(packer(name), "total > 10", group="packers", name=name)
            for name, node in (("first", cellar), ("second", cellar), ("third", hall))
        ]
        assert cellar.ready(30) and hall.ready(30)

        for number in range(40):
            source.publish(Order(number, 20.0 if number % 2 else 5.0))
        eventually(lambda: len(packed) == 20)
        once = Counter(number for _, number in packed)
        print(f"{len(packed)} orders of more than 10, each packed once: {set(once.values()) == {1}}")
        assert shop.flush(30)  # all of it is acknowledged

        # One does not go on, and then is gone: what it has not packed goes to others, and says so. It has one order:
        # while all are at something the others are nobody's, and wait for whoever is free.
        packed.clear()
        for member in members:
            member.pause()
        for number in range(100, 109):
            source.publish(Order(number, 50.0))
        for member in members[1:]:
            member.resume()
        eventually(lambda: len(packed) == 8)
        print(f"packed while the first rests: {len(packed)}")
        left = sorted(set(range(100, 109)) - {number for _, number in packed})
        members[0].cancel()
        eventually(lambda: len(packed) == 9)
        print(f"what the first had in hand went to others, marked: {sorted(marked) == left}")


main()
