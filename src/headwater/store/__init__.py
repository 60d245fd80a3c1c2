"""A node's own state on disk: what it must remember when it is started again. It holds no rules."""
