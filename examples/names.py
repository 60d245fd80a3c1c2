"""Names that are owned: two colleges that know nothing of each other's nodes, a badge system found by its name, and
somebody who may not say to have one. Run it: `python examples/names.py`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from headwater import Event, Network, Node
from headwater.errors import FederationError
from headwater.names import NameChange, Names, NodeAddress, make_owner_key
from headwater.testing import Recorder

WAIT = 60.0  # seconds, at most, for what takes a moment
NAME = "ie.tcd.cs.ActiveBadge"


class Sighting(Event, name="ie.tcd.Sighting"):
    badge: str
    room: int


def router(name: str, federation: str) -> Node:
    """A node that others of its federation, and visitors, connect to."""
    return Node(name, network=Network(listen="127.0.0.1:0", router=True, acquaintance="named", federation=federation))


def address(node: Node) -> NodeAddress:
    return NodeAddress(node.id, node.federation_report().federation, node.endpoints)


def member(name: str, hub: Node, root_key: str) -> tuple[Node, Names]:
    """A node of a hub's federation, which asks the hub for names."""
    federation = address(hub).federation
    network = Network(
        connect=hub.endpoints, client=True, direct="127.0.0.1:0", acquaintance="named", federation=federation
    )
    node = Node(name, network=network)
    return node, Names(node, {"anchors": {".": root_key}, "servers": [address(hub)]})


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        router("root", "core") as root,
        router("gate", "tcd") as gate,
        router("names", "ucc") as ucc,
    ):
        # 1. Who owns what: the root gives ie.tcd away, and signs so; ie.tcd consents to badges, of anybody in it.
        keys = {name: Path(folder) / f"{name}.key" for name in ("root", "tcd", "ucc")}
        prints = {name: make_owner_key(path) for name, path in keys.items()}
        parts = {
            "ie.tcd": {"owner": prints["tcd"], "servers": [address(gate)]},
            "ie.ucc": {"owner": prints["ucc"], "servers": [address(ucc)]},
        }
        anchors = {".": {"owner": prints["root"], "servers": [address(root)]}}
        Names(root, {"serve": [{"domain": ".", "key": keys["root"], "delegations": parts}]})
        for domain, hub, names in (("ie.tcd", gate, NAME), ("ie.ucc", ucc, "ie.ucc.lift")):
            served = {
                "domain": domain,
                "key": keys[domain.removeprefix("ie.")],
                "parent": [address(root)],
                "advertise": [{"names": names, "who": "*"}],
            }
            Names(hub, {"anchors": anchors, "serve": [served]})
        story(gate, ucc, prints["root"])


def story(gate: Node, ucc: Node, root_key: str) -> None:
    station, having = member("station", gate, root_key)
    desk, names = member("desk", ucc, root_key)
    others = [member(f"office{number}", gate, root_key)[0] for number in range(3)]
    with station, desk:
        # 2. Advertising needs the consent of the name's domain.
        badges = station.channel(NAME, Sighting).source("hall")
        having.advertise(NAME)
        try:
            having.advertise("ie.ucc.door")
        except FederationError as error:
            print("ie.ucc.door:", "has not consented" if "has not consented" in str(error) else error)

        # 3. Looked up from another college: its server asks the root, and then the one that the root names.
        print(names.lookup(NAME))
        print(names.lookup(NAME))

        # 4. Watched, and subscribed to: the interest goes to the source.
        changes: Recorder[NameChange] = Recorder()
        heard: Recorder[Sighting] = Recorder()
        with names.watch(NAME, changes) as watch, names.subscribe(NAME, heard, "room == 7") as subscription:
            assert watch.ready(WAIT) and subscription.ready(WAIT)
            for number in range(100):
                badges.publish(badge=f"b{number}", room=number % 10)
            heard.wait(10, WAIT)
            print(f"heard {len(heard.events)} of 100 sightings, all of room {set(heard.field('room'))}")

            # 5. What each knows: nobody who has nothing to do with it.
            leg = names.reach.legs["tcd"]
            print(f"the desk knows {', '.join(desk.peers)} at home and {', '.join(leg.peers)} in tcd")
            print(f"the offices know {sum(len(office.peers) for office in others)} nodes")

            # 6. The source moves away.
            having.withdraw(NAME)
            print(f"{changes.wait(1, WAIT)[0].node}: {changes.events[0].change}")
        for office in others:
            office.close()


if __name__ == "__main__":
    main()
