"""`python -m korch_cli` is `korch`."""

from korch_cli.cli import main

main()
