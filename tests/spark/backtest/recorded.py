"""A node on which random triggers are at work while random transactions run, with a log that has it all: the changes,
and what the triggers told."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from headwater import Node
from headwater.errors import TransactionError
from headwater.logs import LogFiles
from headwater.objects import Computed, over, was
from headwater.objects import count as counted
from headwater.spark.backtest import AskedTrigger
from headwater.testing import ManualClock

NAMES = ("a", "b", "c", "q")  # an action changes what is further to the right only, so that everything ends
TYPES = {"a": "P", "b": "P", "c": "P", "q": "Q"}
HISTORY = {
    "h": over("new.x", "9 s", most=5),
    "c": counted("new.x > 1", "12 s"),
    "ever": counted("new.x = 2"),
    "w": was("new.x > 1"),
}
TEXTS = {  # what it asks, and the inputs and histories that it reads
    "": "",
    "new": "new.x > :k",
    "moved": "abs(new.x - old.x) > :k",
    "last": "last.x is null or abs(new.x - last.x) > :k",
    "both": "new.y < 3 and new.x - a.x > :k",
    "inputs": "a.x - b.x > :k",
    "other": "q.x > :k and event.op != 'raised'",
    "before": "previous.a.x < a.x",
    "window": "h.max - h.min > :k or h.count > 4",
    "counts": "c.count >= 2 and ever.count > :k",
    "was": "w.it != (new.x > 1)",
}
INPUTS = {"both": ("a",), "inputs": ("a", "b"), "other": ("q",), "before": ("a",)}
READS = {"window": ("h",), "counts": ("c", "ever"), "was": ("w",)}


def random_trigger(random: Random, name: str, room: str) -> AskedTrigger:
    """Any that `objects.trigger` takes."""
    ask = random.choice(sorted(TEXTS))
    of = random.choice(["P", "P", "P", "Q"])
    names = random.choice([[f"{room}/*"], [f"{room}/a"], [f"{room}/b", f"{room}/c"]]) if of == "P" else [f"{room}/q"]
    if of == "Q" and ask == "both":
        ask = "inputs"  # it has no y
    kind = random.choice(["", "", "", "", "created ", "destroyed ", "unchanged 3 s "])
    if kind == "unchanged 3 s " and ask in INPUTS:
        ask = "new"  # of what is due at once, anything may be first, and a condition over all objects could tell
    member = random.choice(["", ".x"]) if kind in ("", "unchanged 3 s ") else ""
    words: dict[str, Any] = {"coupling": "after"}
    if ask not in INPUTS:
        words["coupling"] = random.choice(["after", "within", "decoupled"])
    last = names[-1].rpartition("/")[2]
    later = NAMES[NAMES.index(last) + 1 :] if last in NAMES else ("q",) * (of == "P" and "*" not in last)
    if later and kind != "unchanged 3 s " and random.random() < 0.4:
        target = random.choice(later)
        words["do"] = lambda t: t.update(f"{room}/{target}", {"x": Computed("coalesce(new.x, old.x) - 1")}, event=True)
    values = {"x": "new.x", "was": "old.x", **{f"in_{each}": f"{each}.x" for each in INPUTS.get(ask, ())}}
    values |= {"max": "h.max", "mean": "h.mean", "whole": "h.whole"} if ask == "window" else {}
    return AskedTrigger(
        name=name,
        on=[f"{kind}{each}{member}" for each in names],
        type=of,
        when=random.choice(["each", "becomes"]) if ask else "each",
        where=TEXTS[ask],
        inputs={each: (f"{room}/{each}", TYPES[each]) for each in INPUTS.get(ask, ())},
        history={each: HISTORY[each] for each in READS.get(ask, ())},
        params={"k": random.randint(-1, 3)} if ":k" in TEXTS[ask] else {},
        priority=random.randint(0, 1),
        notify=values,
        **words,
    )


def at_work(objects: Any, each: AskedTrigger) -> bool:
    """Install it; whether it is a new one: of two equal ones, the second is the first."""
    made = objects.trigger(
        each.name, on=each.on, type=each.type, when=each.when, where=each.where, inputs=each.inputs,
        history=each.history, params=each.params, do=each.do, notify=each.notify, priority=each.priority,
        coupling=each.coupling, veto=each.veto,
    )  # fmt: skip
    return bool(made.name == each.name)


def transact(objects: Any, random: Random, room: str) -> None:
    """One transaction, of which everything is told; it may be refused."""
    there = {name for name in NAMES if f"{room}/{name}" in objects}
    try:
        with objects.transaction() as t:
            for _ in range(random.randint(1, 3)):
                name = random.choice(NAMES)
                values: dict[str, Any] = {"x": random.randint(-2, 5)}
                if TYPES[name] == "P":
                    values["y"] = random.randint(0, 5)
                op = random.choice(["update"] * 8 + ["raise", "member", "destroy"]) if name in there else "create"
                if op in ("create", "destroy"):
                    (there.add if op == "create" else there.discard)(name)
                match op if random.random() < 0.97 else "create":
                    case "update":
                        t.update(f"{room}/{name}", dict(random.sample(sorted(values.items()), 1)), event=True)
                    case "raise":
                        t.raise_event(f"{room}/{name}")
                    case "member":
                        t.raise_event(f"{room}/{name}.{random.choice(sorted(values))}")
                    case "destroy":
                        t.destroy(f"{room}/{name}")
                    case "create":
                        t.create(f"{room}/{name}", TYPES[name], values)
    except TransactionError:
        pass


def in_line(objects: Any) -> None:
    """Wait until everything has run that was in line."""
    with objects.transaction() as t:
        t.read("clock")


def record(folder: Path, seed: int, rooms: int, turns: int) -> list[AskedTrigger]:
    """Rooms one after the other, each with triggers and objects of its own. The triggers that were at work."""
    folder.mkdir(parents=True, exist_ok=True)
    random, clock, numbers = Random(seed), ManualClock(), count()
    kept: list[AskedTrigger] = []
    with Node("n", state=":memory:", log=folder / "log", clock=clock) as node:
        objects = node.objects
        objects.type("P", "x: i64, y: i64")
        objects.type("Q", "x: i64, note: text?")
        with objects.transaction() as t:
            t.create("clock", "P", x=0, y=0)
        for number in range(rooms):
            room = f"r{number}"
            made = [random_trigger(random, f"t{next(numbers)}", room) for _ in range(8)]
            made.append(AskedTrigger(name=f"t{next(numbers)}", on=f"{room}/*", type="P", when="each", veto="too much",
                                     where="new.x = 5 and new.y > 3", coupling="within"))  # fmt: skip
            kept += [each for each in made if at_work(objects, each)]
            with objects.transaction() as t:
                for name in NAMES:
                    t.create(f"{room}/{name}", TYPES[name], {"x": 0, "y": 0} if TYPES[name] == "P" else {"x": 0})
            for _ in range(turns):
                transact(objects, random, room)
                for _ in NAMES:  # what is decoupled may decouple more
                    in_line(objects)
                for _ in range(random.choice([0, 0, 1, 1, 2, 4])):
                    clock.advance(1)
                    in_line(objects)
        with objects.transaction() as t:
            t.raise_event("clock")  # it is recorded until then
        node.flush()
    return kept


def told(folder: Path, name: str) -> list[dict[str, Any]]:
    """What a trigger has told, as the log has it."""
    log, channel = LogFiles(folder / "log"), f"triggers.n.{name}"
    if channel not in log.channels():
        return []
    return comparable(row for batch in log.read(channel) for row in batch.to_pylist())


def comparable(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What time brings has a turn of its own, which is in no change; and of what is due at once, anything is first."""
    made = [{name: value for name, value in row.items() if not name.startswith("event_")} for row in rows]
    timed = [{**row, "turn": None} for row in made if row["op"].startswith("unchanged")]
    return sorted(timed, key=lambda row: (row["time"], row["object"])) if len(timed) == len(made) else made
