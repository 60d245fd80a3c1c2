"""Names that are owned: domains, their signed delegations, who has sources of a name, and how a name is looked up."""
