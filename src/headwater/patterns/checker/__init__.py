"""From a pattern as it was written to one that can run: names, types, order and bounds, all problems at once."""
