"""The notations in which patterns are written, each turned into one written tree."""
