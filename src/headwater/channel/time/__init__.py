"""Clocks, and what is to be done at which time."""
