"""Bridges: channels joined to what is no node, such as a broker or a browser, by a declared mapping; one file each."""
