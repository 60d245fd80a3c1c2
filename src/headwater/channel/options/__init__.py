"""What users may say of nodes, sources and subscriptions, checked at the door."""
