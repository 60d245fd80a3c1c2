"""Objects of other nodes: transactions are run by their owners, and their values are read there."""
