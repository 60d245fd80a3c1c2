"""The soak: what happens to Headwater in a long time, counted. `make soak`, or `python -m tests.soak --help`."""
