"""Kernel bodies to C++ text: pure functions, no compiler."""
