"""Patterns at a node: events of its channels in their order, matches out.

definition     text or a pattern, checked against the channels that the node knows
watermark      how far the sources have come
blind_spots    of which times not all that was published is known
operator       events in, results out: a runner, and what is counted
stage          the operator at work: its mailbox, its timer
subscription   `node.match` and `node.pattern`
report         what is going on
"""
