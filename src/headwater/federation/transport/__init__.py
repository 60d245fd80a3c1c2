"""Direct streams between two nodes, and the routed path where none can be made: frames in, frames out."""
