"""Triggers: what is to be done when the world is so, or becomes so; they meet `Reactions`."""
