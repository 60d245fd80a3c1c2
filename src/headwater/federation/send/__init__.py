"""From a source to the socket: crossings, lanes, what waits in them, and catching up from the log."""
