"""Objects and their turns, measured: beside SQLite alone, and where a sync takes its time."""
