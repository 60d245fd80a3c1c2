"""Which thread runs handlers, and how a node ends."""
