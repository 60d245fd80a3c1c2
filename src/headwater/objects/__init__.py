"""Objects, transactions and turns: a node's model of its world, as values and rules only; it knows no channel, no node
and no network."""
