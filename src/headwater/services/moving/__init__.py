"""Sinks and sources that move between nodes: which may go on where, kept so that it is one place at a time."""
