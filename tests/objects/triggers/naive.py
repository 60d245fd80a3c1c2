"""What triggers do, by looking at every one of them for every event: no index, no programs, nothing shared with the
engine. Objects have the fields x and y; a trigger is a dict."""

from __future__ import annotations

from typing import Any

World = dict[str, dict[str, int]]


class Naive:
    """A world, its triggers in the order of installation, and what has come of everything."""

    def __init__(self, triggers: list[dict[str, Any]]) -> None:
        self.world: World = {}
        self.triggers = triggers
        self.holds: set[tuple[int, str]] = set()
        self.last: dict[tuple[int, str], dict[str, int]] = {}
        self.changes: list[tuple[str, str, int | None]] = []  # object, op, x
        self.told: dict[str, list[tuple[str, int | None]]] = {each["name"]: [] for each in triggers}

    def turn(self, operations: list[tuple[Any, ...]]) -> bool:
        """Whether it was done."""
        there = set(self.world)
        for op, name, *_ in operations:
            if (op == "create") == (name in there):
                return False
            (there.discard if op == "destroy" else there.add)(name)
        waiting = self._judge(self._run(operations))
        while waiting:
            waiting = self._judge(self._run([waiting[0]])) + waiting[1:]
        return True

    def _run(self, operations: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        happened = []
        for op, name, *rest in operations:
            old = self.world.get(name)
            if op == "destroy":
                self.world.pop(name)
                happened.append(("destroyed", name, old, None, True))
                continue
            if op == "raise":
                happened.append(("raised", name, old, old, True))
                continue
            if op == "update" and old is None:
                continue  # an action that fails is undone alone
            new = {**(old or {"x": 0, "y": 0}), **rest[0]}
            self.world[name] = new
            happened.append(("created" if op == "create" else "updated", name, old, new, op == "create" or rest[1]))
        self.changes += [(name, op, new and new["x"]) for op, name, _, new, event in happened if event]
        return happened

    def _judge(self, happened: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        actions = []
        for op, name, old, new, event in happened:
            if not event:
                continue
            order = sorted(range(len(self.triggers)), key=lambda at: (-self.triggers[at]["priority"], at))
            fired = [at for at in order if self._fires(at, op, name, old, new)]
            for at in fired:
                trigger = self.triggers[at]
                self.told[trigger["name"]].append((name, new and new["x"]))
                if trigger["target"]:
                    actions.append(("update", trigger["target"], {"x": (new or old)["x"] - 1}, True))
            if op == "destroyed":
                self.holds = {each for each in self.holds if each[1] != name}
                self.last = {each: value for each, value in self.last.items() if each[0] < 0 or each[1] != name}
        return actions

    def _fires(self, at: int, op: str, name: str, old: Any, new: Any) -> bool:
        trigger = self.triggers[at]
        if not self._meant(trigger, op, name, old, new):
            return False
        key = at, "" if trigger["ask"] == "inputs" else name
        true = self._true(trigger, key, old, new)
        fires = true and (trigger["when"] == "each" or key not in self.holds)
        if trigger["when"] == "becomes":
            (self.holds.add if true else self.holds.discard)(key)
        if fires and trigger["ask"] == "last":
            self.last[key] = new
        return fires

    def _meant(self, trigger: dict[str, Any], op: str, name: str, old: Any, new: Any) -> bool:
        ops = {"change": ("updated", "raised"), "created": ("created",), "destroyed": ("destroyed",)}[trigger["kind"]]
        if op not in ops or not (trigger["on"] == "*" or name in trigger["on"]):
            return False
        return not trigger["member"] or op == "raised" or old[trigger["member"]] != new[trigger["member"]]

    def _true(self, trigger: dict[str, Any], key: tuple[int, str], old: Any, new: Any) -> bool:
        k = trigger["k"]
        match trigger["ask"]:
            case "new":
                return new is not None and new["x"] > k
            case "moved":
                return old is not None and new is not None and abs(new["x"] - old["x"]) > k
            case "last":
                last = self.last.get(key)
                return new is not None and (last is None or abs(new["x"] - last["x"]) > k)
            case "both":
                other = self.world.get("a")
                return new is not None and other is not None and new["y"] < 3 and new["x"] - other["x"] > k
            case "inputs":
                a, b = self.world.get("a"), self.world.get("b")
                return a is not None and b is not None and a["x"] - b["x"] > k
        return True
