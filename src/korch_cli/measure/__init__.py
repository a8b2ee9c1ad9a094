"""How long kernels and models take on this machine, and the store that remembers it."""
