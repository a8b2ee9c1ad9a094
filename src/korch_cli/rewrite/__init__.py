"""Exact rewriting of the primitive graph; one rule is one function and one row of a table."""

from korch_cli.rewrite.driver import rewrite as rewrite
