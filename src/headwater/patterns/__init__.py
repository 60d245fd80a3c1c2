"""Composite events: what several events say together, in order, within a time, or by their absence."""
