"""Sinks and sources that move to other nodes: tokens, leaving, claiming, and going on where they were."""
