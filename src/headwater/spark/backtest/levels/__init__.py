"""Backtest of levels: what replicas with several bounds would have been told of recorded changes, and how far off they
would have been."""
