"""Separation of aircraft: each owns its position, and control wants to hear when two come too close to each other.

python examples/separation.py

No aircraft knows the other, and control does not follow them. Each gets a safe zone, a box in which the outcome cannot
change, and says nothing as long as it is inside.
"""

import tempfile
from pathlib import Path

from headwater import Node
from headwater.testing import eventually

STEPS = 120


def fly(node: Node, x: float, y: float) -> None:
    """To another place, without an event: what is watched is watched all the same."""
    with node.objects.transaction() as t:
        t.update("position", {"x": x, "y": y})


def main() -> None:
    """Two aircraft approach each other until they are too close, and part again."""
    folder = Path(tempfile.mkdtemp())
    with (
        Node("control", state=folder / "control.state", listen="tcp/127.0.0.1:0") as control,
        Node("ei104", state=folder / "ei104.state", connect=control.endpoints[0]) as ei104,
        Node("ba832", state=folder / "ba832.state", connect=control.endpoints[0]) as ba832,
    ):
        for aircraft, x in ((ei104, 0.0), (ba832, 300.0)):
            aircraft.objects.type("Position", "x: f64, y: f64")
            with aircraft.objects.transaction() as t:
                t.create("position", "Position", x=x, y=0.0)
        control.until(lambda: {"ei104", "ba832"} <= set(control.peers))

        close = control.objects.trigger(
            "close",
            when="becomes",
            where="distance(a.x, a.y, b.x, b.y) < :miles",
            params={"miles": 70.0},
            inputs={"a": "//ei104/position", "b": "//ba832/position"},
            notify={"a": "a.x", "b": "b.x", "at": "new.time"},
        )
        told = close.subscribe()
        eventually(lambda: close.holds is False)  # both have said where they are

        for step in range(1, STEPS + 1):
            fly(ei104, float(step), 0.0)
            fly(ba832, 300.0 - step, 0.0)
        warning = told.get(timeout=60)
        print(f"too close: {warning.a:g} and {warning.b:g}, {warning.b - warning.a:g} miles apart")

        for step in range(1, STEPS + 1):
            fly(ba832, 180.0 + 10 * step, 0.0)
        eventually(lambda: close.holds is False)
        report = close.report()
        print(f"fired {report['fired']} time, and is known not to hold now: {close.unknown_since is None}")
        print(f"of {3 * STEPS} changes {report['changes']} are known of, by {report['messages']} messages")


if __name__ == "__main__":
    main()
