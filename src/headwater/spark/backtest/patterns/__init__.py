"""Backtest of patterns: when each would have fired over recorded events, and what would have crossed for it."""
