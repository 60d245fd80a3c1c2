"""Patterns over several nodes: what of their events crosses, and how what was missed meanwhile is had."""
