"""A node's own state on disk: what it must remember when it is started again. It holds no rules."""

from headwater.store.migrations import Tables
from headwater.store.readers import Snapshot
from headwater.store.state import NodeState, RoomTables
from headwater.store.transactions import Transaction
from headwater.store.within import WithinConnection

__all__ = ["NodeState", "RoomTables", "Snapshot", "Tables", "Transaction", "WithinConnection"]
