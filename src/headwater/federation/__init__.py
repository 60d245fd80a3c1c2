"""Nodes that find each other, move interests to the sources and lose nothing: the network of the event service."""
