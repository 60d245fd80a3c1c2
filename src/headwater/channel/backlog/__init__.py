"""The past of a channel's sources: one protocol, with a ring in memory and the log behind it."""
