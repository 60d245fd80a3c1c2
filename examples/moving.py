"""Moving: Ann reads at her desk, on the stairs on her phone, and at home; then the server of the mail moves. Mail is
numbered, and none is missing.

python examples/moving.py
"""

import tempfile
from pathlib import Path
from typing import Any

from headwater import Node, Reliable
from headwater.errors import ClosedError, FederationError, SubscriptionError


def main() -> None:
    """Three places, one sink: it goes on at each where it was at the one before; and so does its source."""
    folder = Path(tempfile.mkdtemp())
    with (
        Node("lab", listen="tcp/127.0.0.1:0", log=folder / "log", state=folder / "lab") as lab,
        Node("desk", connect=lab.endpoints[0], state=folder / "desk") as desk,
        Node("phone", connect=lab.endpoints[0], state=folder / "phone") as phone,
        Node("home", connect=lab.endpoints[0], log=folder / "home.log", state=folder / "home") as home,
    ):
        places = {"desk": desk, "phone": phone, "home": home}
        server = lab.channel("tcd.mail", "to: text, n: i64").source("server")
        read: dict[str, list[int]] = {name: [] for name in places}

        def mail(first: int, last: int) -> None:
            for n in range(first, last + 1):
                server.publish(to="ann", n=n)
                server.publish(to="bob", n=-n)

        def wait(where: str, last: int) -> None:
            places[where].until(lambda: read[where][-1:] == [last], 60.0)

        def reads(where: str) -> Any:
            return lambda event: read[where].append(event.n)

        for name, node in places.items():
            node.until(lambda node=node, name=name: {"lab", *places} - {name} <= {*node.peers}, 60.0)
        desk.until(lambda: desk.has_channel("tcd.mail"), 60.0)
        sink = desk.channel("tcd.mail").subscribe(
            reads("desk"), "to == :who", params={"who": "ann"}, name="ann", delivery=Reliable(durable=True)
        )
        desk.ready(60.0)
        mail(1, 5)
        wait("desk", 5)

        token = sink.move(to="phone")
        mail(6, 10)  # she is on the stairs
        try:
            home.resume(token, reads("home"))
        except FederationError as error:
            print("home:", str(error).partition(', "key:')[0])  # and by which key it was shown
        sink = phone.resume(token, reads("phone"))
        mail(11, 15)
        wait("phone", 15)
        try:
            desk.channel("tcd.mail").subscribe(reads("desk"), name="ann", delivery=Reliable(durable=True))
        except SubscriptionError as error:
            print(f"desk: {str(error).partition('.')[0]}")  # and which node of that name it is

        sink = home.resume(sink.move(), reads("home"))
        mail(16, 20)
        wait("home", 20)
        sink = desk.resume(sink.move(), reads("desk"))
        mail(21, 25)
        wait("desk", 25)

        old, server = server, home.resume_source(server.move(to="home"))  # the machine in the lab is switched off
        try:
            old.publish(to="ann", n=0)
        except ClosedError as error:
            print(f"lab: {error}")
        mail(26, 30)
        wait("desk", 30)
        print(f"the {server.name} has published {server.seq} events, of which the log at home has the last ten")
        for name, numbers in read.items():
            print(f"{name} has read {numbers}")
        once = sorted(n for numbers in read.values() for n in numbers) == list(range(1, 31))
        ordered = all(numbers == sorted(numbers) for numbers in read.values())
        print(f"all of it once, in order: {once and ordered}")


if __name__ == "__main__":
    main()
