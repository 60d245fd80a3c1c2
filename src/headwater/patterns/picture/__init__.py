"""The automaton of a pattern as a picture: one layout, drawn as text and as SVG."""
