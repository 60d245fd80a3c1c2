"""Everything Zenoh: who is there, queries and answers, news, and messages to one node."""
