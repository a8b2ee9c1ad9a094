"""The `korch` command."""
