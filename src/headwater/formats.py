"""The numbers of the formats in which Headwater writes and sends, all in one place.

A format keeps its number while whoever knows it reads what is written in it, and while what it writes is read by those
who know that number: fields that readers skip or do without may be added. Any other change is a new number. What reads
what, and what is said of a number that is not known, is in docs/compatibility.md, which a test compares with this.
"""

from __future__ import annotations

RECORD = 1  # an event as bytes: `types/layout.py`; in frames, in the log's write-ahead files, in memory
INTEREST = 1  # a checked program as bytes: `ir/encode.py`; in requests, in Spark's tasks
PATTERN = 1  # a checked pattern as bytes: `patterns/serial.py`; in requests, in Spark's tasks
FRAMES = 1  # of a stream between two nodes: `federation/wire`
DATAGRAM = 1  # of a multicast group: `federation/multicast/datagram.py`
ENVELOPE = 2  # a signed message, with a request, a card or a greeting in it: `federation/security/envelope.py`
BOX = 1  # a message that only one node can open: `federation/security/session.py`
SESSION = 3  # how two nodes make the keys they share: `federation/security/session.py`
SEALED_STREAM = 1  # how the two ends of a stream do: `federation/transport/sealed_stream.py`
PROOF = 2  # what shows that a node knows a user's password: `federation/security/proof.py`
USER_PROOF = 1  # what shows that a user asks, and not only its node: `federation/security/user_proof.py`
WRITE_AHEAD = 1  # a segment of a log that is not at rest yet: `store/log/wal.py`
STATE = 2  # a node's state in SQLite: `store/state.py`
SNAPSHOT = 1  # the state of a run, with its position in each source: `runnable.py`
OFFSET = 1  # of a stream in Spark's checkpoint: `spark/live/offsets.py`
DOCUMENT = 1  # a signed policy, delegation of names or named interest: `services/documents.py`
