"""`korch verify`."""

from __future__ import annotations

from pathlib import Path

import click

from korch_cli.cli.feeding import draw_shared_inputs, read_inputs
from korch_cli.cli.options import (
    MODEL,
    format_flag,
    inputs_flag,
    provider_of,
    quiet_flag,
    require_model,
    seed_flag,
    shape_flags,
    target_flag,
    threads_flag,
    tolerance_flags,
)
from korch_cli.cli.values import bindings_of
from korch_cli.core.errors import ExitCode


@click.command()
@click.argument("reference", metavar="A", type=MODEL)
@click.argument("candidate", metavar="B", type=MODEL)
@shape_flags
@target_flag
@threads_flag
@click.option("--runs", type=click.IntRange(min=1), default=3, help="Sets of random inputs.")
@seed_flag
@inputs_flag
@tolerance_flags
@format_flag
@quiet_flag
@click.pass_context
def verify(
    ctx: click.Context,
    reference: Path,
    candidate: Path,
    dims: tuple[tuple[str, int], ...],
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    target: str,
    threads: int,
    runs: int,
    seed: int,
    inputs: Path | None,
    rtol: float,
    atol: float,
    form: str,
    quiet: bool,
) -> None:
    """Compare what A and B compute, on random inputs; exit with 1 if they differ by more than the tolerance.

    A runs without any optimisation of ONNX Runtime's, B as it would be deployed. A B written by korch is checked twice:
    with the kernel library that lies beside it, and without. A runs on the CPU, B where --target says.
    """
    for path in (reference, candidate):
        require_model(path)
    given, bindings = read_inputs(inputs, bindings_of(dims, shapes))

    from korch_cli import verify as stage  # onnx comes with it
    from korch_cli.report import render_verdicts, show_progress, to_json

    provider = provider_of(target)
    feeds = draw_shared_inputs((reference, candidate), bindings, seed=seed, runs=runs, given=given)
    trusted = stage.Subject(
        reference.name, reference, stage.fitting_library(reference, [stage.CPU_PROVIDER]), optimize=False
    )
    library = stage.fitting_library(candidate, [provider])
    variants = [("as it is", None)] if library is None else [("with the library", library), ("without it", None)]
    with show_progress(quiet=quiet) as progress:
        verdicts = []
        for variant, used in variants:
            progress.stage(f"Comparing {candidate.name}, {variant}, with {reference.name}")
            subject = stage.Subject(candidate.name, candidate, used, optimize=True, provider=provider)
            verdicts.append(
                stage.verify_models(trusted, subject, feeds, rtol=rtol, atol=atol, variant=variant, threads=threads)
            )
    code = ExitCode.OK if all(verdict.passed for verdict in verdicts) else ExitCode.ANSWER_IS_NO
    text = to_json("verify", {"verdicts": verdicts}, code) if form == "json" else render_verdicts(verdicts)
    click.echo(text)
    ctx.exit(code)
