"""LLVM assembly that does not depend on the program, compiled once per process."""
