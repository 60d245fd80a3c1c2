"""Rows of a batch on their way to a frame: picked from the batch they are in, without making another of them first."""

from __future__ import annotations

from functools import cache
from typing import Any

from headwater.channel.routing.letter import Chunk, Rows
from headwater.federation.send.pending import BYTES
from headwater.federation.wire.batch import encode_message
from headwater.late import np
from headwater.native.python.row_picker import ROWS, Picker, picker


@cache
def _numbers() -> Any:
    return np.arange(ROWS, dtype=np.int64)


def picker_of(type: Any) -> Picker | None:
    """What picks rows of batches of an event type; None if nothing can, or there is no type."""
    return None if type is None else picker(type.record)


def few_records(picker: Picker | None, type: Any, chunk: Chunk) -> list[bytes] | None:
    """The records of a few rows (ROWS at most) of this event type; None if they take too many bytes for a frame."""
    if picker is not None and len(chunk) * picker.size < BYTES:
        if isinstance(chunk, Rows):
            made = picker.records(chunk.origin.taken(), chunk.places)
        else:
            made = picker.records(chunk.taken(), _numbers()[: len(chunk)])
        if made is not None:
            return made
    batch = chunk.taken()
    return type.arrow_to_records(batch) if batch.nbytes < BYTES else None


def picked_frame(picker: Picker | None, source: int, number: int, chunk: Chunk) -> tuple[int, int, bytes] | None:
    """Of some rows of a batch: the last one's sequence number, how many they are, and their frame. None if they are no
    such rows, or too many, or the picker cannot give them."""
    if picker is None or not isinstance(chunk, Rows) or len(chunk) > ROWS:
        return None
    message = picker.message(chunk.origin.taken(), chunk.places)
    if message is None or len(message) > BYTES:
        return None
    seqs = chunk.seqs
    return int(seqs[-1]), len(chunk), encode_message(source, number, seqs, chunk.stamp, len(chunk), message)
