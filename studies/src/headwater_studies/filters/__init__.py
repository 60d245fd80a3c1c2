"""Moved code: what it costs to make and to run, and from which rejection rate on it pays."""
