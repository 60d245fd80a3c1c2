"""Which thread runs handlers."""
