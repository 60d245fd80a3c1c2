"""Headwater: a distributed, typed event service in which interest travels to the event."""
