"""Groups over several nodes: members are told to the nodes of sources, which hand each event to one of them."""
