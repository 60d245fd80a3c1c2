"""Who gets an event: routes, the members of them, and changing both all at once."""
