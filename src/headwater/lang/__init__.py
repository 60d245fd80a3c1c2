"""Three notations for interests, each turned into a checked program: predicate text, E-Code, Python."""
