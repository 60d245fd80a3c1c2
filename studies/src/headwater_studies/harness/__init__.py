"""What the studies share: rounds in which everybody takes a turn, results as values, and pages made of them."""
