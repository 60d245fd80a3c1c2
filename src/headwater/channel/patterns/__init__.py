"""Patterns at one node: what feeds a run with events of channels, and what is kept of it."""
