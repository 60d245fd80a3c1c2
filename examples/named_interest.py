"""An interest by name: published once, asked for by name, tried in a new version on what was logged, and exchanged.

python examples/named_interest.py
"""

import tempfile
from pathlib import Path

from headwater import Node


def main() -> None:
    """A guard hears what is loud; then cats do not count any more; then they do again."""
    folder = Path(tempfile.mkdtemp())
    with (
        Node("hall", listen="tcp/127.0.0.1:0", log=folder / "log") as hall,
        Node("desk", connect=hall.endpoints[0]) as desk,
        Node("library", connect=hall.endpoints[0]) as library,
    ):
        door = hall.channel("hall.door", "who: text, level: f64")
        east = door.source("east")
        entry = library.library.publish("loud", "level > :limit", on="who: text, level: f64", params={"limit": 0.5})
        print(f"published {entry}, {entry.size} bytes of code, fingerprint {entry.fingerprint.hex()}")

        # The desk has the interest from the library; to the hall goes its name, and the code since it lacks that.
        desk.until(lambda: desk.has_channel("hall.door") and "library" in desk.peers)
        guard = desk.channel("hall.door").subscribe(where="@loud/1", params={"limit": 0.7}, name="guard")
        desk.ready()
        for who, level in (("ann", 0.6), ("ann", 0.8), ("cat", 0.9)):
            east.publish(who=who, level=level)
        print(f"the guard hears {[guard.get(timeout=60).who for _ in range(2)]}")
        [row] = hall.library.running("hall.door")
        asker = row.asked_by.partition(":")[0]
        print(f"at hall runs {row.what} for {asker}: {row.evaluated} evaluated, {row.passed} passed")

        # Another version, side by side with the first on what was logged, before it runs.
        library.library.publish(
            "loud", "level > :limit and who != 'cat'", on="who: text, level: f64", params={"limit": 0.5}
        )
        found = desk.library.compare("@loud/1", "@loud/2", folder / "log", "hall.door")
        print(f"of {found.events} events {found.only_old} would not be heard any more: {found.examples_old[0]['who']}")

        [told] = desk.library.upgrade("@loud/2")
        print(f"{told.subscription} went from version {told.before} to 2 after {told.points}")
        print(f"all nodes know: {told.acknowledged}")
        east.publish(who="cat", level=0.9)
        east.publish(who="bob", level=0.9)
        print(f"the guard hears {guard.get(timeout=60).who}")
        desk.library.upgrade("@loud/1")
        east.publish(who="cat", level=0.9)
        print(f"and, back at version 1, {guard.get(timeout=60).who}")


if __name__ == "__main__":
    main()
