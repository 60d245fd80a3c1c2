"""What `headwater node`, `listen`, `publish`, `replay` and `certificates` do."""
