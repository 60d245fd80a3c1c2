"""Workers of a study that are forked from a process which has loaded what they need, instead of started."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from headwater_studies.fleet.worker import Worker
from tests.federation.nursery import Popen


class ForkedWorker(Worker):
    """What is to run inside something is started."""

    @staticmethod
    def _start(module: str, arguments: Sequence[str], inside: Sequence[str]) -> subprocess.Popen[str]:
        if inside:
            return Worker._start(module, arguments, inside)
        command = [sys.executable, "-m", module, *arguments]
        return Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
