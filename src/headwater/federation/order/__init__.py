"""A total order: a sequencer that is elected, and the subscriptions that ask for it."""
