"""A node's security as the transports want it: TLS contexts for direct streams, settings for Zenoh."""

from __future__ import annotations

import atexit
import os
import ssl
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import ConfigError, ConfigProblem
from headwater.federation.security.user_keys import UserKeys, keys_of, login_key

if TYPE_CHECKING:
    from headwater.federation.security.settings import Security, User


def tls_contexts(security: Security) -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
    """The contexts for accepting and for dialling direct streams, or None where there are no certificates.

    TLS 1.2 at least, and mutual: both sides must show a certificate of the authority. Whether the certificate names the
    host that was dialled is not checked unless `verify_hosts` is set, for nodes move and share hosts. That is right
    only because the first frame of a stream is an envelope, signed by the node's own key: whoever accepts it must
    see that `same_key(stream.certificate, opened.key)` holds, so that the node at the other end is the one that signed.
    """
    if security.certificate is None or security.key is None or security.authority is None:
        return None
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = security.verify_hosts
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        try:
            context.load_verify_locations(os.fspath(security.authority))
            context.load_cert_chain(os.fspath(security.certificate), os.fspath(security.key), _no_password)
        except (ssl.SSLError, OSError) as error:
            place = f"{security.certificate}, {security.key}, {security.authority}"
            problem = ConfigProblem(place, "a certificate, its private key and an authority, in PEM form", str(error))
            raise ConfigError([problem]) from error
    return server, client


def _no_password() -> str:
    """Without this, a key with a password on it would stop the node to ask for it on the terminal."""
    return ""


def zenoh_settings(security: Security) -> dict[str, Any]:
    """Zenoh's settings for this security, by key; values are such as JSON has.

    The links between nodes are then as well protected as direct streams are: by mutual TLS (on `tls/` and `quic/`
    endpoints), and by user and password. Zenoh knows who is at the other end of a link, not who sent a message that
    came through it; that is what envelopes are for. It gets no password, but a key made of it (`login_key`).
    """
    found: dict[str, Any] = {}
    if security.certificate is not None and security.key is not None and security.authority is not None:
        certificate, key = os.fspath(security.certificate), os.fspath(security.key)
        found |= {
            "transport/link/tls/root_ca_certificate": os.fspath(security.authority),
            "transport/link/tls/listen_certificate": certificate,
            "transport/link/tls/listen_private_key": key,
            "transport/link/tls/connect_certificate": certificate,
            "transport/link/tls/connect_private_key": key,
            "transport/link/tls/enable_mtls": True,
            "transport/link/tls/verify_name_on_connect": security.verify_hosts,
            "transport/link/tls/close_link_on_expiration": True,
        }
    if security.user is not None and security.password is not None:
        found |= {
            "transport/auth/usrpwd/user": security.user,
            "transport/auth/usrpwd/password": login_key(security.user, security.password),
        }
    if users := security.users_by_name():
        found["transport/auth/usrpwd/dictionary_file"] = _dictionary(users)
    return found


_files: dict[str, tuple[str, int | None]] = {}  # by content: the path, and the file descriptor behind it


def _dictionary(users: Mapping[str, User]) -> str:
    """The path of a file with these users, which Zenoh reads when a session is opened.

    In memory where the system can do that, so that no key is left behind by a process that is killed; else a
    private file that is removed at the end of the process. One for the same users, however often it is asked for.
    """
    text = "".join(f"{name}:{keys.login}\n" for name, keys in sorted(all_keys(users).items()))
    if text in _files:
        return _files[text][0]
    descriptor: int | None
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("headwater-users", os.MFD_CLOEXEC)
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, text.encode())
        path = f"/proc/self/fd/{descriptor}"
    else:
        handle, path = tempfile.mkstemp(prefix="headwater-users-")  # with mode 600
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        descriptor = None
        atexit.register(_remove, path)
    _files[text] = (path, descriptor)
    return path


def all_keys(users: Mapping[str, User]) -> dict[str, UserKeys]:
    """Those of all users: as they are known, or made of passwords, which takes a while."""
    made = keys_of({name: user.password for name, user in users.items() if user.password is not None})
    return {name: user.keys or made[name] for name, user in users.items()}


def _remove(path: str) -> None:
    with suppress(OSError):
        Path(path).unlink()
