"""Rewriting of the primitive graph: exact rules, one function and one row each, and ways to compute the same united."""

from korch_cli.rewrite.driver import rewrite as rewrite
from korch_cli.rewrite.union import Union as Union
from korch_cli.rewrite.union import unite as unite
