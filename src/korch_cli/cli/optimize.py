"""`korch optimize`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from korch_cli.cli.feeding import read_inputs
from korch_cli.cli.options import (
    MODEL,
    cuda_flags,
    format_flag,
    inputs_flag,
    kernel_size_flag,
    processors,
    quiet_flag,
    report_flag,
    require_file,
    require_model,
    require_report,
    same_file,
    seed_flag,
    shape_flags,
    spare_weights,
    target_flag,
    threads_flag,
    tolerance_flags,
    write_report,
)
from korch_cli.cli.values import Duration, Number, bindings_of
from korch_cli.core.companions import library_beside, plan_beside
from korch_cli.core.errors import ExitCode, UsageError
from korch_cli.core.processor import PROCESSORS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from korch_cli.core.record import DryRunRecord, OptimizeRecord


@click.command()
@click.argument("source", metavar="IN", type=MODEL)
@click.option("-o", "--output", metavar="OUT", type=MODEL, help="The model to write; needed without --dry-run.")
@shape_flags
@target_flag
@cuda_flags
@threads_flag
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=processors,
    show_default="the processors of this process",
    help="Compilers that run at the same time.",
)
@seed_flag
@inputs_flag
@tolerance_flags
@click.option(
    "--gap",
    type=Number(min=0, max=1),
    default=0.02,
    help="Stop the search when its plan is proven to be within this share of the best.",
)
@click.option("--budget", type=Duration(), default="10m", help="Time that the search may take.")
@click.option("--solver-time", type=Duration(), default="60s", help="Time that one solution of the program may take.")
@kernel_size_flag
@click.option(
    "--cxx",
    metavar="PATH",
    default=None,
    show_default="$KORCH_CXX, or the first that works of g++, clang++, c++ and zig",
    help="The C++ compiler.",
)
@click.option(
    "--cpu",
    type=click.Choice(PROCESSORS),
    default=None,
    show_default="that of the plan, or native",
    help="Build kernels for this processor alone, or for all of a level.",
)
@click.option(
    "--from-plan", metavar="PLAN", type=MODEL, default=None, help="Build this plan again, without search and timing."
)
@click.option(
    "--portable",
    is_flag=True,
    help="Where nodes are written as other operators, use those of ONNX alone, none of ONNX Runtime's own.",
)
@click.option(
    "--force-fusion", is_flag=True, help="For tests: fuse all that can be generated, whatever it costs; time nothing."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Count, bound the gain and estimate the time; write nothing, neither model nor store.",
)
@format_flag
@report_flag
@click.option("-v", "--verbose", is_flag=True, help="List every kernel and every reason in the result.")
@quiet_flag
def optimize(
    source: Path,
    output: Path | None,
    dims: tuple[tuple[str, int], ...],
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    target: str,
    archs: tuple[str, ...],
    gpu: str | None,
    threads: int,
    jobs: int,
    seed: int,
    inputs: Path | None,
    rtol: float,
    atol: float,
    gap: float,
    budget: float,
    solver_time: float,
    max_kernel_size: int,
    cxx: str | None,
    cpu: str | None,
    from_plan: Path | None,
    portable: bool,
    force_fusion: bool,
    dry_run: bool,
    form: str,
    report: Path | None,
    verbose: bool,
    quiet: bool,
) -> None:
    """Write a faster model that computes the same as IN.

    Beside OUT lie its kernel library (.korch.so) and the plan (.plan.json). OUT equals IN if nothing faster is found.
    """
    _check_paths(source, output, report, inputs, dry_run=dry_run)
    require_report(report, *(path for path in (inputs, from_plan) if path is not None))
    _check_modes({"--from-plan": from_plan is not None, "--force-fusion": force_fusion, "--dry-run": dry_run})
    given, bindings = read_inputs(inputs, bindings_of(dims, shapes))

    from korch_cli import pipeline  # everything heavy comes with it
    from korch_cli.report import render_dry_run, render_optimize, show_progress, to_json

    settings = pipeline.Settings(
        source=source,
        output=source if output is None else output,
        bindings=bindings,
        threads=threads,
        jobs=jobs,
        seed=seed,
        inputs=given,
        rtol=rtol,
        atol=atol,
        gap=gap,
        budget_s=budget,
        solver_time_s=solver_time,
        max_primitives=max_kernel_size,
        compiler=cxx,
        processor=cpu,
        plan=from_plan,
        # What ONNX Runtime has beside ONNX, it does not have for every provider.
        portable=portable or target == "cuda",
        target=target,
        archs=archs,
        gpu=gpu,
        force_fusion=force_fusion,
    )
    spare_weights(source, report)
    with show_progress(quiet=quiet) as progress:
        if dry_run:
            expected: DryRunRecord = pipeline.dry_run(settings, progress)
            document, text = to_json("dry-run", expected, ExitCode.OK), render_dry_run(expected, verbose=verbose)
        else:
            record: OptimizeRecord = pipeline.optimize(settings, progress)
            document, text = to_json("optimize", record, ExitCode.OK), render_optimize(record, verbose=verbose)
    write_report(document, report)
    click.echo(document if form == "json" else text)


def _check_modes(modes: Mapping[str, bool]) -> None:
    chosen = [flag for flag, given in modes.items() if given]
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} and {chosen[1]} exclude each other", hint="leave out one of them")


def _check_paths(source: Path, output: Path | None, report: Path | None, inputs: Path | None, *, dry_run: bool) -> None:
    """Find what is wrong with the files named before any work is done.

    Raises:
        UsageError: two of them are the same, or one to write is a folder.
        ModelError: IN is not a file that can be read.
        MissingError: a folder to write in is not there or takes no files.
    """
    if output is None:
        if not dry_run:
            raise click.MissingParameter(param_type="option", param_hint="'-o' / '--output'")
        require_model(source)
        require_report(report, source)
        return
    if same_file(source, output):
        raise UsageError("IN and OUT are the same file", where=str(output), hint="give OUT another name")
    require_model(source)
    require_file(output)
    if output.suffix.lower() == ".ort":
        hint = "let its name end in .onnx"
        raise UsageError("ONNX Runtime takes files of this name for another format", where=str(output), hint=hint)
    beside = (
        library_beside(output),
        plan_beside(output),
        output.with_name(f"{output.name}.data"),
    )
    for path in beside:
        if same_file(source, path):
            raise UsageError(
                "IN would be overwritten by a file beside OUT", where=str(path), hint="give OUT another name"
            )
    if inputs is not None and any(same_file(inputs, path) for path in (output, *beside)):
        hint = "give OUT another name"
        raise UsageError("the arrays of --inputs would be overwritten", where=str(inputs), hint=hint)
    require_report(report, source, output, *beside)
