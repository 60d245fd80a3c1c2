"""Interests on their way: what sinks here want of others, and what others may install at sources here."""
