"""Replicas: what other nodes have of this node's objects, never further from it than a bound, and when that was so."""
