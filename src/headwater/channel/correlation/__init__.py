"""Subscriptions to conjunctions and disjunctions of events, on several channels."""
