"""Apache Flink beside Headwater: the same MATCH_RECOGNIZE over the same events, in an environment of its own."""
