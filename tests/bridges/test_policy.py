"""What goes out to a broker is what policies show a device of the kind `bridge`."""

from __future__ import annotations

from collections.abc import Callable

from headwater import Event, Node, u32
from headwater.bridges.contract import Bridge
from headwater.bridges.mapping import Mapping, Message, Translation
from headwater.bridges.topics import MQTT
from headwater.policy import ChannelPolicy, Clause
from headwater.testing import eventually


class Reading(Event):
    room: str
    number: u32


class Shelf(Bridge):
    """The least of bridges: what goes out is put on a shelf."""

    syntax = MQTT

    def __init__(self, node: Node, mapping: Mapping) -> None:
        super().__init__(node, "shelf", [mapping])
        self.shelf: list[bytes] = []

    @property
    def is_connected(self) -> bool:
        return True

    def connect(self, incoming: list[Translation]) -> None:
        pass

    def disconnect(self) -> None:
        pass

    def send(self, mapping: Mapping, message: Message, key: str, done: Callable[[], None]) -> None:
        self.shelf.append(message.payload)
        done()


def policy(*clauses: Clause) -> ChannelPolicy:
    return ChannelPolicy(name="readings", channel="readings", type=Reading, clauses=clauses)


def test_a_broker_gets_what_is_shown_to_bridges_and_that_may_change() -> None:
    mapping = Mapping("screens/{room}", "readings", direction="out", payload="text:number", where="number >= 10")
    with Node("hall", listen="127.0.0.1:0") as node:
        source = node.channel("readings", Reading).source()
        shelf = node.services.add(Shelf(node, mapping))
        numbers, wanted = iter(range(1000)), list[int]()

        def publishes(*gone: int) -> None:
            """Twenty events, of which these go out. The order is that of publishing: what comes last says of all."""
            for _ in range(20):
                source.publish(room="lab", number=next(numbers))
            wanted.extend(gone)
            eventually(lambda: len(shelf.shelf) >= len(wanted))
            assert [int(each) for each in shelf.shelf] == wanted

        publishes(*range(10, 20))
        node.policies.set(policy(Clause(who="kind:bridge", show="number % 2 = 0"), Clause(show="true")))
        publishes(*range(20, 40, 2))
        node.policies.set(policy(Clause(who="ann", show="true")))  # what is not known is closed
        publishes()
        node.policies.lift("readings")
        publishes(*range(60, 80))
