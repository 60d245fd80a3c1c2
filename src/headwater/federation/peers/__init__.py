"""The other nodes: who is there, what each says of itself, and the state of the link to each."""
