"""What waits at a sink: its mailbox, in which order, and how far a durable one is."""
