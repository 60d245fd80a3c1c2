"""Backtest of triggers: when each would have fired over recorded changes of objects, and what it would have told."""
