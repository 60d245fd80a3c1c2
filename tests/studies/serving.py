"""A process of a measurement that has started another program, for tests."""

from __future__ import annotations

from typing import Any

from headwater_studies.fleet.server import Served, Server
from headwater_studies.fleet.worker import serve


class Serving(Served):
    """Its program stays until it is ended."""

    def open(self, peer: Any = None) -> dict[str, Any]:
        self._server = Server(lambda port, folder: ("sleep", "100000"))
        return {"server": self._server.pid}


if __name__ == "__main__":
    serve(Serving())
