"""Compilers: finding them, running them, keeping what they built."""
