"""A bridge in a process of its own, which is killed and started again; what it has taken in is in its log."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError
from headwater.logs import LogFiles
from tests.federation.nursery import Popen

PROGRAM = """
import sys
from headwater import Node
{imports}
broker, yard, folder, *rest = sys.argv[1:]
node = Node("hall", state=folder + "/state", log=folder + "/log", connect=yard)
node.channel("readings", Reading)
node.channel("shown", Reading)
node.services.add({bridge})
assert node.until(lambda: "yard" in node.peers, 60) and node.ready(60)
print("started", flush=True)
sys.stdin.read()
"""


class KilledBridge:
    """It joins a node beside `yard` to a broker, in both directions. A context manager, which kills it."""

    def __init__(self, imports: str, bridge: str, broker: str, yard: str, folder: Path, *rest: str) -> None:
        """`imports`: what the expression `bridge` needs, and `Reading`; of it `broker` and `rest` are known."""
        self._folder, program = folder, PROGRAM.format(imports=imports, bridge=bridge)
        self._command = [sys.executable, "-c", program, broker, yard, str(folder), *rest]
        self._process: Any = None

    def __enter__(self) -> KilledBridge:
        made = self._process = Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert made.stdout is not None and made.stdout.readline() == b"started\n"
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def logged(self) -> list[int]:
        """The numbers that have come in, in order."""
        with suppress(HeadwaterError):  # it has no log before the first event
            read = LogFiles(self._folder / "log").read("readings")
            return [n for batch in read for n in batch.column("number").to_pylist()]
        return []
