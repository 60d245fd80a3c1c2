"""Workers of a study that are forked from a process which has loaded what they need, instead of started."""

from __future__ import annotations

import io
import select
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

from headwater_studies.fleet.worker import Worker
from tests.federation.nursery import AVAILABLE, Forked


class _Process(Forked):
    """With text and patience, as `subprocess.Popen` has them."""

    def __init__(self, module: str, *arguments: str) -> None:
        super().__init__(2, module, *arguments)
        self.stdin: Any = io.TextIOWrapper(self.stdin, encoding="utf-8")
        self.stdout: Any = io.TextIOWrapper(self.stdout, encoding="utf-8")

    def wait(self, timeout: float | None = None) -> int:
        if not select.select([self._handle], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return -1

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedWorker(Worker):
    """Where a process cannot be forked so, or is to run inside something, it is started."""

    @staticmethod
    def _start(module: str, arguments: Sequence[str], inside: Sequence[str]) -> Any:
        return _Process(module, *arguments) if AVAILABLE and not inside else Worker._start(module, arguments, inside)
