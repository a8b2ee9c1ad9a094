"""Which sets of primitives could be one kernel, and what each costs at least."""
