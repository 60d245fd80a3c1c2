"""Two federations joined for some of their channels."""
