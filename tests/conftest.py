"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says nothing: machines are busy, and the first one may compile.
settings.register_profile("headwater", settings(), deadline=None)
settings.load_profile("headwater")
