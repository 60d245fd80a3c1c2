"""Larger federations than can be run here: a model, fed with measured costs and checked against real federations."""
