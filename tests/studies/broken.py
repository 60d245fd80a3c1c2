"""A system that cannot be started, for tests."""

from __future__ import annotations

from typing import Any

from headwater_studies.fleet.receiving import Receiving
from headwater_studies.fleet.worker import serve


class Broken(Receiving):
    """Its server is at fault, say."""

    def open(self, peer: Any = None) -> dict[str, Any]:
        raise RuntimeError("its server does not listen")

    def close(self) -> None:
        """There is nothing to close."""


if __name__ == "__main__":
    serve(Broken())
