"""Fixtures of several modules of this room; a module may have its own of the same names."""

from tests.federation.certified import authority, make

__all__ = ["authority", "make"]
