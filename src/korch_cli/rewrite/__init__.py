"""Equivalent primitives, one rule a function."""
