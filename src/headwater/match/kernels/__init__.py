"""The matching kernels, as LLVM assembly and as builtin functions."""
