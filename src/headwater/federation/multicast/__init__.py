"""One datagram for all nodes that want what is in it."""
