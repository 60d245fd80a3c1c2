"""What the sinks of this node want of a channel: as few wishes as say it, kept in step with them."""
