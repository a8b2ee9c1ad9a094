"""The version, in a module of its own so that packaging and `korch --version` import nothing else."""

__version__ = "0.1.0"
