"""Sinks that move between nodes: which of them may go on where, kept so that it is one place at a time."""
