"""By which key all nodes know the same source, whoever has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.channel.queues.position_keys import key_of

if TYPE_CHECKING:
    from headwater.federation.context import Context


def shared_key(context: Context, source: Any) -> str:
    """Of a source of this node or another: one that is logged has its key for good, others for this life of their
    node."""
    if not source.local:
        return str(source.position_key)
    if source.log is not None:
        return str(source.home or key_of(source.node, source.log.id, source.name))
    return f"{context.id}/{context.incarnation}/{source.number}"


def is_logged(source: Any) -> bool:
    """Whether what a durable sink has missed of a source can be read from a log."""
    return bool(source.log is not None and not source.relays) if source.local else bool(source.rereads)


__all__ = ["is_logged", "shared_key"]
