"""Services with quality as programs declare them: `node.objects.service(...)`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.errors import ObjectError
from headwater.objects.replicas.quality import (
    MOST_LEVELS,
    QualityService,
    QualityServices,
    declaring,
    quality_service,
    withdrawing,
)
from headwater.objects.triggers.administration import removing

if TYPE_CHECKING:
    from headwater.objects.engine import ObjectEngine
    from headwater.objects.operations import Administer, Outcome
    from headwater.objects.replicas.spec import Linear


class HasServices:
    """What `node.objects` has of services."""

    _services: QualityServices
    engine: ObjectEngine

    def _run(self, operation: Administer) -> Outcome:
        raise NotImplementedError

    def service(
        self,
        name: str,
        pattern: str,
        *,
        type: str,
        levels: Mapping[str, Mapping[str, float]],
        members: Iterable[str] = (),
        model: Linear | None = None,
    ) -> None:
        """Offer objects to other nodes by the name of a service, in levels, the best first, each with the bounds of its
        members: as `replica` takes them. For good, until it is withdrawn; the same name again is another from then on,
        and who has one keeps what it was."""
        form = self.engine.types.named(type).type
        made = quality_service(name, pattern, type, form, levels, node=self.engine.node, members=members, model=model)
        self._run(declaring(made))

    def trigger_service(self, name: str, *, levels: Mapping[str, Mapping[str, float]], **trigger: Any) -> None:
        """Offer what a trigger tells to other nodes by the name of a service, in levels, the best first: each is the
        trigger with those values of its parameters, installed here as `trigger` does, over objects of several nodes
        too. `{"10 m": {"d": 10.0}}` with `where="abs(a.x - b.x) > :d"` tells when they are more than 10 apart."""
        found = []
        if not isinstance(name, str) or not name.isidentifier():
            found.append(f"name: expected letters, digits and _, found {name!r}")
        if not 1 <= len(levels) <= MOST_LEVELS:
            found.append(f"levels: expected 1 to {MOST_LEVELS}, found {len(levels)}")
        for given in ("params", "name"):
            if given in trigger:
                found.append(f"{given}: expected to be said by levels, found it said for all")
        if not trigger.get("notify"):
            found.append("notify: expected what is told, found nothing")
        if found:
            raise ObjectError("\n".join([f"service {name!r}:", *(f"  - {each}" for each in found)]))
        objects: Any = self  # which has triggers as well
        made = {
            level: objects.trigger(f"service.{name}.level{number}", params=params, **trigger).name
            for number, (level, params) in enumerate(levels.items(), 1)
        }
        values = {level: {key: float(value) for key, value in params.items()} for level, params in levels.items()}
        self._run(declaring(QualityService(name, "", "", values, triggers=made)))

    @property
    def services(self) -> dict[str, QualityService]:
        """Those that are declared, by name."""
        return dict(self._services.by_name)

    def withdraw_service(self, name: str) -> None:
        """Nobody gets it any more; who has a replica keeps it. Triggers of it are removed."""
        known = self._services.by_name.get(name)
        self._run(withdrawing(name))
        for trigger in dict.fromkeys(() if known is None else known.triggers.values()):
            if trigger in self.engine.triggers.registry.by_name:
                self._run(removing(trigger))


__all__ = ["HasServices"]
