"""The integer program that picks the kernels."""
