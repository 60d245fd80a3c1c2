"""Who a node is, how it proves that, and what others may do: certificates, keys, envelopes, rules."""
