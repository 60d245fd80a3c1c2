"""Reports of studies: what was found, as values; plots; and one page that needs nothing else."""
