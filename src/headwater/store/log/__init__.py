"""The event log: what a node's own sources published, written ahead and at rest as Parquet that anybody reads."""

from headwater.store.log.layout import channels
from headwater.store.log.progress import Progress
from headwater.store.log.settings import Log
from headwater.store.log.writing import ChannelLog, Recovered

__all__ = ["ChannelLog", "Log", "Progress", "Recovered", "channels"]
