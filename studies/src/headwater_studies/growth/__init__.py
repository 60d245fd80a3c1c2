"""More subscriptions, sources, sinks and nodes, as far as one machine goes."""
