"""Logs of nodes, read from other nodes and processes."""
