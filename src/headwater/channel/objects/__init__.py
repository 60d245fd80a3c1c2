"""`node.objects`: a node's model of its world, bound to its state, its channels and its clock."""
