"""The choice of kernels: an exact program over the whole graph, a greedy baseline, and an independent checker."""

from korch_cli.solve.checker import check_plan as check_plan
from korch_cli.solve.greedy import greedy as greedy
from korch_cli.solve.lazy import Outlook as Outlook
from korch_cli.solve.lazy import SearchResult as SearchResult
from korch_cli.solve.lazy import orchestrate as orchestrate
from korch_cli.solve.lazy import outlook as outlook
from korch_cli.solve.program import solve as solve
from korch_cli.solve.required import least_us as least_us
from korch_cli.solve.required import solve_with as solve_with
