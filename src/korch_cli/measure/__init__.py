"""Timing, the machine's limits, and the store of everything that was measured."""

from korch_cli.measure.calibrate import calibrate as calibrate
from korch_cli.measure.child import Worker as Worker
from korch_cli.measure.doubt import Watch as Watch
from korch_cli.measure.doubt import is_due as is_due
from korch_cli.measure.doubt import kept as kept
from korch_cli.measure.identity import chosen_folder as chosen_folder
from korch_cli.measure.identity import default_folder as default_folder
from korch_cli.measure.identity import machine_identity as machine_identity
from korch_cli.measure.identity import missing_features as missing_features
from korch_cli.measure.jobs import ModelTimes as ModelTimes
from korch_cli.measure.jobs import measure_kernels as measure_kernels
from korch_cli.measure.jobs import profile_model as profile_model
from korch_cli.measure.jobs import rewritten_model as rewritten_model
from korch_cli.measure.pruning import DEFAULT_LIMIT as DEFAULT_LIMIT
from korch_cli.measure.pruning import Removed as Removed
from korch_cli.measure.pruning import cache_limit as cache_limit
from korch_cli.measure.pruning import clear as clear
from korch_cli.measure.pruning import content_of as content_of
from korch_cli.measure.pruning import prune as prune
from korch_cli.measure.store import ProfileStore as ProfileStore
from korch_cli.measure.transfer import copy_store as copy_store
from korch_cli.measure.transfer import export_store as export_store
from korch_cli.measure.transfer import import_store as import_store
