"""The active badge study: its day, its subscribers, its published tables, and ours beside them."""
