"""Enumeration of candidate kernels: convex sets of primitives, their canonical form and their lower bounds."""

from korch_cli.candidates.bound import lower_bound_us as lower_bound_us
from korch_cli.candidates.bound import work_of as work_of
from korch_cli.candidates.canonical import cut as cut
from korch_cli.candidates.canonical import cut_all as cut_all
from korch_cli.candidates.enumeration import candidate_of as candidate_of
from korch_cli.candidates.enumeration import enumerate_candidates as enumerate_candidates
from korch_cli.candidates.legality import plausible as plausible
from korch_cli.candidates.limits import CandidateSet as CandidateSet
from korch_cli.candidates.limits import SearchLimits as SearchLimits
from korch_cli.candidates.operators import single_nodes as single_nodes
from korch_cli.candidates.operators import single_operators as single_operators
from korch_cli.candidates.vendor import vendor_candidates as vendor_candidates
