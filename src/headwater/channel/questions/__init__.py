"""Questions: an event that somebody answers, with a deadline; here or at other nodes, by channels like any."""
