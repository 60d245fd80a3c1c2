"""Objects as they ought to be, by the simplest program: a dict, copied for each transaction. It shares no code."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

Change = tuple[str, str, Any, Any]  # object, what was done, value before and after


class Refused(Exception):
    """At this operation."""


class Model:
    """Objects have fields x, an integer, and note, a text or None."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.changes: list[Change] = []

    def run(self, operations: list[tuple[Any, ...]]) -> tuple[int, dict[str, Any]]:
        """The number of the operation that is refused, 0 if none is, and what was read."""
        objects, changes, reads = deepcopy(self.objects), list[Change](), dict[str, Any]()
        for number, operation in enumerate(operations, 1):
            try:
                self.step(objects, changes, reads, *operation)
            except Refused:
                return number, {}
        self.objects = objects
        self.changes += changes
        return 0, reads

    def step(
        self, objects: Any, changes: list[Change], reads: dict[str, Any], what: str, name: str, *rest: Any
    ) -> None:
        there = objects.get(name)
        if what == "create":
            if there is not None:
                raise Refused
            objects[name] = {"x": rest[0], "note": rest[1]}
            changes.append((name, "created", None, dict(objects[name])))
            return
        if what == "guard":
            if not (rest[0] in reads and reads[rest[0]] < rest[1]):
                raise Refused
            return
        if what == "put" and there is None:
            if "x" not in rest[0]:
                raise Refused
            objects[name] = {"note": None, **rest[0]}
            changes.append((name, "created", None, dict(objects[name])))
            return
        if there is None:
            raise Refused
        old = dict(there)
        if what in ("set", "put"):
            there.update(rest[0])
        elif what == "add":  # what was read, or x itself, and a number
            alias, more = rest[:2]
            if alias is not None and alias not in reads:
                raise Refused
            there["x"] = (there["x"] if alias is None else reads[alias]) + more
        elif what == "read":
            if rest[0] in reads:
                raise Refused
            reads[rest[0]] = there["x"]
        elif what == "destroy":
            del objects[name]
            changes.append((name, "destroyed", old, None))
        elif what == "raise":
            changes.append((name, "raised", old, old))
        if what in ("set", "put", "add") and rest[-1]:
            changes.append((name, "updated", old, dict(there)))


__all__ = ["Change", "Model", "Refused"]
