"""A program that ends without closing its nodes: they are closed for it, or threads of Zenoh would keep it from ending.

Its other threads come first: as long as one of them runs, the program has not ended.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from headwater.threads import Supervised

if TYPE_CHECKING:
    from headwater.channel.options.config import Config

log = logging.getLogger(__name__)
_nodes: WeakSet[Closable] = WeakSet()
_lock = threading.Lock()
_NAME = "headwater-at-exit"
_OWN = ("headwater-", "pyo3-closure")  # in names of threads that are there because of a node


class Closable(Protocol):
    """A node, as far as it is to be closed."""

    name: str
    config: Config
    closed: bool

    def flush(self, timeout: float) -> bool: ...

    def close(self) -> object: ...


def close_at_exit(node: Closable) -> None:
    """See to it that the node is closed when the program ends, if it still is open then."""
    with _lock:
        _nodes.add(node)
        if not any(thread.name == _NAME for thread in threading.enumerate()):
            # No daemon: the interpreter waits for it, and is not taken down while Zenoh is being closed.
            Supervised(_close_all, _NAME, daemon=False).start()


def _close_all() -> None:
    threading.main_thread().join()
    while others := [each for each in threading.enumerate() if not (each.daemon or _own(each))]:
        others[0].join()
    with _lock:
        nodes = [node for node in _nodes if not node.closed]
    for node in nodes:  # they may work for each other: what one has published, another is still to get
        with suppress(Exception):
            node.flush(node.config.close_timeout)
    for node in nodes:
        try:
            node.close()
        except Exception as error:  # the others are still to be closed
            log.error("node %s could not be closed at the end of the program", node.name, exc_info=error)


def _forked() -> None:
    """In a process that was forked: the nodes are its parent's, and so are their connections."""
    global _lock
    _lock = threading.Lock()  # another thread may have held it
    _nodes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _own(thread: threading.Thread) -> bool:
    return thread is threading.main_thread() or any(name in thread.name for name in _OWN)
