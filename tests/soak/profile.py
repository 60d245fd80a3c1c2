"""For pytest: how Hypothesis works in the soak. What is found is said at once, not made smaller first, since its time
may be up before that is done; and nothing is remembered from other runs, since the seed alone says what is tried."""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("soak", phases=(Phase.explicit, Phase.generate, Phase.target), database=None)
settings.load_profile("soak")
