"""Timing, the machine's limits, and the store of everything that was measured."""

from korch_cli.measure.calibrate import calibrate as calibrate
from korch_cli.measure.identity import default_folder as default_folder
from korch_cli.measure.identity import machine_identity as machine_identity
from korch_cli.measure.jobs import ModelTimes as ModelTimes
from korch_cli.measure.jobs import measure_kernels as measure_kernels
from korch_cli.measure.jobs import profile_model as profile_model
from korch_cli.measure.store import ProfileStore as ProfileStore
