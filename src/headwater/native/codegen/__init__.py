"""From a program to LLVM: what depends on the interest."""
