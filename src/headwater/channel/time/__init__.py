"""Clocks, timers and deadlines."""
