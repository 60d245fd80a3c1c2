"""Patterns over DataFrames: as window functions where those can say them exactly, else by runners in the workers."""
