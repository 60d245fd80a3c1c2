"""Opening and ending a Zenoh session."""

from __future__ import annotations

import json
import logging
import os
import threading
from typing import Any, NamedTuple

import zenoh

from headwater.errors import ConfigError, ConfigProblem, FederationError
from headwater.federation.endpoints import Locator
from headwater.federation.fabric.settings import Ports, SessionSettings, plain, session_config

log = logging.getLogger("headwater.federation")
PORT_ATTEMPTS = 20  # to get ports that were free a moment ago

# Sessions of one process share Zenoh's few threads. Opened all at once, they keep each other from answering in time,
# break up, and come together no more; so they open one after the other.
_opening = threading.Lock()


def _forked() -> None:
    global _opening
    _opening = threading.Lock()  # a thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def one_at_a_time() -> threading.Lock:
    """The lock to hold while a session is opened, and declares what it has."""
    return _opening


class Opened(NamedTuple):
    """A session, with what it was told, and where it listens."""

    session: Any
    config: dict[str, Any]
    endpoints: tuple[Locator, ...]


def open_session(node: str, settings: SessionSettings) -> Opened:
    """`FederationError`: a port is taken, or nobody answers; `ConfigError`: Zenoh refuses a setting."""
    for attempt in range(PORT_ATTEMPTS):
        try:
            ports = Ports(settings.listen)
        except OSError as error:
            listen = ", ".join(each.written or str(each) for each in settings.listen)
            raise FederationError(f"node {node}: cannot listen at {listen}: {error}") from error
        config = session_config(settings, ports.endpoints)
        try:
            told = zenoh.Config.from_json5(json.dumps(config))
        except (zenoh.ZError, TypeError, ValueError) as error:
            ports.release()
            raise ConfigError([ConfigProblem("settings", "settings that Zenoh knows", plain(error))]) from error
        try:
            session = zenoh.open(told)
        except zenoh.ZError as error:
            if ports.chosen and "in use" in str(error) and attempt + 1 < PORT_ATTEMPTS:
                continue
            raise FederationError(f"node {node}: {plain(error)}") from error
        finally:
            ports.release()
        return Opened(session, config, tuple(ports.endpoints))
    raise AssertionError("every attempt returns, continues or raises")


def end_session(node: str, session: Any) -> None:
    """Its token goes with it. Beside a frozen node this may take ten seconds; the others hear of it before that."""
    try:
        session.close()
    except zenoh.ZError as error:
        log.debug("node %s: %s", node, plain(error))


__all__ = ["Opened", "end_session", "one_at_a_time", "open_session"]
