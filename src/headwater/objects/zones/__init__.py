"""Safe zones: where the inputs of a condition may move without a word, as its owners and its home agree on them."""
