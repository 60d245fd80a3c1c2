"""Services that federations of nodes offer, as values and rules: documents, policies; no network and no keys."""
