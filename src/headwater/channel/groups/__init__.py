"""Groups: each event goes to one of several sinks that share a name; who that is, the node of its source decides."""
