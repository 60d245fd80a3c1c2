"""The other nodes that this one knows, by id."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.federation.peers.peer import Peer


class Peers(dict[str, "Peer"]):
    """Looked at by any thread; changed, and gone through, with the lock."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()

    def everyone(self) -> list[Peer]:
        with self.lock:
            return list(self.values())


__all__ = ["Peers"]
