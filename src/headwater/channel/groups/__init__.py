"""Groups: each event goes to one of several sinks that share a name."""
