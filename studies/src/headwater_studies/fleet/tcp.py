"""Raw TCP from Python: two sockets with TCP_NODELAY, recv and sendall."""

from __future__ import annotations

import socket
from typing import Any

from headwater_studies.fleet.receiving import Receiving
from headwater_studies.fleet.worker import Trips, record, serve

SIZE = 64


class Tcp(Receiving):
    """Two sockets, recv and sendall."""

    def open(self, peer: Any = None, host: str = "127.0.0.1") -> dict[str, Any]:
        if peer is None:
            self._listener = socket.create_server((host, 0))
            return {"peer": self._listener.getsockname()}
        self._socket = socket.create_connection(tuple(peer))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return {"peer": None}

    def join(self, peer: Any) -> None:
        self._socket, _ = self._listener.accept()
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def echo(self, n: int) -> None:
        recv, sendall = self._socket.recv, self._socket.sendall
        for _ in range(n):
            data = recv(SIZE)
            while len(data) < SIZE:
                data += recv(SIZE - len(data))
            sendall(data)

    def trips(self, n: int) -> dict[str, Any]:
        trips, data = Trips(n), record(0)
        recv, sendall = self._socket.recv, self._socket.sendall
        more = True
        while more:
            sendall(data)
            came = recv(SIZE)
            while len(came) < SIZE:
                came += recv(SIZE - len(came))
            more = trips.back()
        return trips.result()

    def close(self) -> None:
        self._socket.close()


if __name__ == "__main__":
    serve(Tcp())
