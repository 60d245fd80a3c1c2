"""A run of a pattern: events in, by one or by batch, matches with their identities and results out."""
