"""Patterns, measured: on Spark, and what of their events crosses a federation."""
