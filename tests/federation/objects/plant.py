"""An owner of objects, a client without any, and what the owner lets it do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater import Node
from headwater.security import Allow
from tests.federation.nodes import Nodes


class Rights:
    """What the owner lets others do, by action and channel; everything else is allowed."""

    def __init__(self, **rights: Any) -> None:
        self.no: dict[tuple[str, str], Any] = {}

    def decide(self, principal: Any, action: str, channel: str, on_behalf_of: str = "") -> Any:
        return self.no.get((action, channel), Allow("yes"))

    def decide_some(self, principal: Any, action: str, pattern: Any) -> Any:
        return Allow("yes")

    def open_to_all(self, action: str, channel: str) -> bool:
        return False

    def hides_from(self, principal: Any) -> bool:
        return False

    def seen_by(self, principal: Any) -> Any:
        return lambda channel: True

    def deals_with(self, principal: Any, action: str | None = None) -> bool:
        return True


class Plant:
    """An owner with two types of objects, and a client that has no state."""

    def __init__(self, make: Nodes, folder: Path, **options: Any) -> None:
        self.make, self.folder, self.options = make, folder, options
        self.open()
        self.desk = make("desk")
        make.together()
        self.remote: Any = self.desk.objects_at("plant")

    def open(self) -> None:
        self.owner: Node = self.make("plant", state=self.folder / "plant.state", **self.options)
        self.objects = self.owner.objects
        self.objects.type("Tank", "level: f64, label: text?")
        self.objects.type("Secret", "key: i64")

    @property
    def turns(self) -> int:
        found: int = self.objects.report()["turns"]
        return found
