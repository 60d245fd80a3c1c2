"""What is read from requests, and said to them, as HTTP has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any

import msgspec
from aiohttp import web

from headwater.bridges.web.session import Portion
from headwater.bridges.web.settings import is_address

GUARDED = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}  # of all answers


async def send_lines(response: web.StreamResponse, key: str, id: int, feed: Any, portion: Portion) -> None:
    """Events as server-sent ones. They are kept: that they were sent does not say that the client has them, and it
    never says so itself."""
    lines = [b"event: dropped\ndata: %d\n\n" % portion.dropped] if portion.dropped else []
    lines += [
        b"id: %b:%d\ndata: %b\n\n" % (key.encode(), number, data)
        for number, data in enumerate(portion.events, portion.first)
    ]
    await response.write(b"".join(lines))


def bearer(request: web.Request) -> str:
    """The token that a request shows, if it does."""
    kind, _, rest = request.headers.get("Authorization", "").partition(" ")
    return rest.strip() if kind.lower() == "bearer" else ""


def client_of(request: web.Request, proxies: Sequence[IPv4Network | IPv6Network]) -> str:
    """The address that a request is from: where the last that is not one of our proxies was. What stands before that
    in the header, anybody may have written."""
    found = request.remote or ""
    said = ",".join(request.headers.getall("X-Forwarded-For", ())).split(",")
    while said and _within(found, proxies):
        before = said.pop().strip().strip("[]")
        if not is_address(before):
            break
        found = before
    return found


def _within(address: str, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    return is_address(address) and any(ip_address(address) in each for each in networks)


def problem(status: int, why: str, headers: Mapping[str, str] | None = None, **beside: Any) -> web.Response:
    """An answer that says what is wrong, and what else there is to say."""
    return web.json_response({"error": why, **beside}, status=status, headers={**GUARDED, **(headers or {})})


def told(request: web.Request, error: web.HTTPException) -> str:
    """What is wrong with a request: where there is nothing, or nothing is done so, also what there is."""
    path = request.path[:80]
    if isinstance(error, web.HTTPNotFound):
        return f"{path}: expected one of the addresses that GET / tells of, found another"
    if isinstance(error, web.HTTPMethodNotAllowed):
        known = " or ".join(sorted(error.allowed_methods - {"OPTIONS"}))
        return f"{path}: expected {known}, found {request.method[:20]}; GET / says what is here"
    return error.reason


def value_of(text: str) -> Any:
    """A parameter in an address: JSON, or else text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return text


__all__ = ["GUARDED", "bearer", "client_of", "problem", "send_lines", "told", "value_of"]
