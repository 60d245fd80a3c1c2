"""From the socket to the sinks: remote sources, checks of records, positions, and deduplication."""
