"""The `korch` command."""

from korch_cli.cli.entry import main as main
