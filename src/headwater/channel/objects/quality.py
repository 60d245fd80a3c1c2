"""Services with quality as programs declare them: `node.objects.service(...)`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headwater.objects.replicas.quality import QualityServices, declaring, quality_service, withdrawing

if TYPE_CHECKING:
    from headwater.objects.engine import ObjectEngine
    from headwater.objects.operations import Administer, Outcome
    from headwater.objects.replicas.quality import QualityService
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

    @property
    def services(self) -> dict[str, QualityService]:
        """Those that are declared, by name."""
        return dict(self._services.by_name)

    def withdraw_service(self, name: str) -> None:
        """Nobody gets it any more; who has it keeps it."""
        self._run(withdrawing(name))


__all__ = ["HasServices"]
