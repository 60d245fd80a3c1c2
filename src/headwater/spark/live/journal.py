"""What a publisher is about to publish, on the disk before it begins: so that after any end it is known what was left.

A folder with one batch, the latest: `batch.arrow` has its events, and in the schema's metadata its number and the
sequence number that its source had before. Where the source's log is not there to say how far publishing got,
`progress` has that.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import StoreError
from headwater.late import pa
from headwater.store.log.layout import hidden, make_folders, sync_folder, write_atomic

PAUSE = 0.02  # seconds between two attempts to get hold of it
_BATCH, _AFTER, _ROWS = b"headwater.batch", b"headwater.after", b"headwater.rows"


@dataclass(frozen=True, slots=True)
class Staged:
    """The latest batch: its number, the sequence number before its first event, how many events it has."""

    batch: int
    after: int
    rows: int


class Journal:
    """Of one query's writing to one channel; one process has it open at a time."""

    def __init__(self, folder: str | os.PathLike[str], *, wait: float = 10.0) -> None:
        self.folder = Path(folder)
        try:
            make_folders(self.folder)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise StoreError(f"journal {self.folder}: expected a folder that can be written: {error}") from error
        self._claim(wait)

    def _claim(self, wait: float) -> None:
        end = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() > end:
                    os.close(self._lock)
                    raise StoreError(
                        f"journal {self.folder}: expected to be the only one that publishes for this query, found "
                        "another process that does; end that, or give the query another name"
                    ) from None
                time.sleep(PAUSE)

    def close(self) -> None:
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    # ── the batch ──

    @property
    def _file(self) -> Path:
        return self.folder / "batch.arrow"

    def latest(self) -> Staged | None:
        """The latest batch; None before the first."""
        try:
            with pa.OSFile(os.fspath(self._file), "rb") as file, pa.ipc.open_file(file) as found:
                notes = found.schema.metadata or {}
                return Staged(int(notes[_BATCH]), int(notes[_AFTER]), int(notes[_ROWS]))
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            raise StoreError(f"journal {self._file}: expected a batch of events, found: {error}") from error

    def stage(self, batch: int, after: int, schema: pa.Schema, events: Iterable[pa.RecordBatch]) -> Staged:
        """Keep a batch in the place of the one before; it is on the disk when this returns, or nothing has changed."""
        made = list(events)
        staged = Staged(batch, after, sum(each.num_rows for each in made))
        notes = {_BATCH: str(batch).encode(), _AFTER: str(after).encode(), _ROWS: str(staged.rows).encode()}
        whole = schema.with_metadata({**(schema.metadata or {}), **notes})
        temporary = hidden(self._file)
        with pa.OSFile(os.fspath(temporary), "wb") as file, pa.ipc.new_file(file, whole) as writer:
            for each in made:
                writer.write_batch(pa.RecordBatch.from_arrays(each.columns, schema=whole))
        descriptor = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(self._file)
        sync_folder(self.folder)
        return staged

    def rest(self, done: int) -> Iterable[pa.RecordBatch]:
        """The events of the latest batch without the first `done` of them."""
        with pa.memory_map(os.fspath(self._file), "r") as file, pa.ipc.open_file(file) as found:
            for at in range(found.num_record_batches):
                batch = found.get_batch(at)
                if done < batch.num_rows:
                    yield batch.slice(done)
                done = max(0, done - batch.num_rows)

    # ── how far it got, where no log says so ──

    def progress(self, staged: Staged) -> int:
        """How many events of the batch were published for sure."""
        try:
            found: Any = json.loads((self.folder / "progress").read_bytes())
            return int(found["rows"]) if found["batch"] == staged.batch else 0
        except FileNotFoundError:
            return 0
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"journal {self.folder / 'progress'}: it cannot be understood: {error}") from error

    def note(self, staged: Staged, rows: int) -> None:
        write_atomic(self.folder / "progress", json.dumps({"batch": staged.batch, "rows": rows}).encode())
