"""Safe zones: a condition over values of several owners is watched with few messages, and nothing is missed.

The home of a trigger (`coordinator.py`) gives each owner (`owner.py`) a box around its values in which the outcome
cannot change, whatever the others do within theirs. An owner is silent inside its box; on leaving it, it reports
everything until it has a new one. Both are state machines: messages go in and come out, `now` is an argument, what has
to survive a crash is a struct. Who carries the messages, and when, is not known here.

What is true at a time is what one gets by putting the owners' changes in the order of their own stamps. Every interval
of that time is decided, or declared unknown since a time. In decided time no firing is missed and none is false.
"""
