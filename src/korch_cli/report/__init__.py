"""Records to text and JSON, and progress to a terminal."""

from korch_cli.report.checkup import Check as Check
from korch_cli.report.checkup import Level as Level
from korch_cli.report.checkup import render_checks as render_checks
from korch_cli.report.comparison import Profile as Profile
from korch_cli.report.comparison import SpeedUp as SpeedUp
from korch_cli.report.comparison import percentile as percentile
from korch_cli.report.comparison import render_comparison as render_comparison
from korch_cli.report.comparison import render_nodes as render_nodes
from korch_cli.report.comparison import render_profile as render_profile
from korch_cli.report.comparison import speed_ups as speed_ups
from korch_cli.report.document import to_json as to_json
from korch_cli.report.dry_run import render_dry_run as render_dry_run
from korch_cli.report.explanation import render_explain as render_explain
from korch_cli.report.inspection import render_inspect as render_inspect
from korch_cli.report.optimization import render_optimize as render_optimize
from korch_cli.report.progress import show_progress as show_progress
from korch_cli.report.reduction import render_reduce as render_reduce
from korch_cli.report.storage import render_cache as render_cache
from korch_cli.report.verdict import render_verdicts as render_verdicts
