"""How long until an event is there: round trips, many consumers, links that are slow and thin."""
