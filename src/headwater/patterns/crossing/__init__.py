"""What of a pattern's events leaves their sources: what its elements ask of single events, and values bound before."""
