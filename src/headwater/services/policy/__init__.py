"""Policies: which part of a channel somebody gets, decided by interests over the event, the user and the place."""
