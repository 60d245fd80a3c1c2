"""Patterns over rows, in order: kernels that share prefixes of runs, kernels that keep runs apart, and their memory."""
