"""Interests by name between nodes: entries are published, fetched and served, and what runs where is listed."""
