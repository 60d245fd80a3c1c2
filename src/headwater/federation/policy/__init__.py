"""Policies between nodes: documents that are signed and spread, how long they hold unheard of, and where users are."""
