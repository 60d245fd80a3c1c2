"""Objects, transactions and turns."""
