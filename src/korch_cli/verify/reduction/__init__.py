"""Reduction of a failing model to its smallest part that still fails: the search, the surgery, the trials."""

from korch_cli.verify.reduction.driver import Clock as Clock
from korch_cli.verify.reduction.driver import Failure as Failure
from korch_cli.verify.reduction.driver import OutOfTimeError as OutOfTimeError
from korch_cli.verify.reduction.driver import Reducer as Reducer
from korch_cli.verify.reduction.driver import is_valid as is_valid
from korch_cli.verify.reduction.driver import observe as observe
from korch_cli.verify.reduction.size import measure_part as measure_part
from korch_cli.verify.reduction.size import operator_types as operator_types
from korch_cli.verify.reduction.specimen import Specimen as Specimen
from korch_cli.verify.reduction.trial import Ending as Ending
