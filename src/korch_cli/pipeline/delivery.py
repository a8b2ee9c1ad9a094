"""From a plan to files: built, verified, compared end to end, and written as a set."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from korch_cli.candidates import work_of
from korch_cli.core.companions import plan_beside
from korch_cli.core.kernel import DOMAIN_PREFIX, Candidate, CandidateKind, KernelBody
from korch_cli.core.launch import GeneratedKernel
from korch_cli.core.plan import Plan
from korch_cli.core.progress import Progress
from korch_cli.core.record import Comparison, ContestantRecord, Verdict
from korch_cli.emit import (
    PLAN_SCHEMA,
    build_model,
    copy_model,
    enclose,
    plan_document,
    save_model,
    with_given,
    write_set,
)
from korch_cli.measure import kept
from korch_cli.pipeline.digest import file_digest
from korch_cli.pipeline.execution import Execution
from korch_cli.pipeline.laboratory import Laboratory
from korch_cli.pipeline.prepare import Prepared, Runnable
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.stored import decode_comparison, encode_comparison
from korch_cli.pipeline.ways import WRITTEN, Ways
from korch_cli.verify import Subject, compare_speed, find_guilty, no_worse, verify_models

_BODIES = "subgraphs on their own"
_LOADED = "with the library, which finds no GPU here"
_COMPARE_SECONDS = (8.0, 30.0)
"""The second comparison is for what the first leaves open, on a busy machine or with a small gain."""


_ESTIMATED = "Estimated to be {:.2f} times as fast as ONNX Runtime's own kernels on the {}; nothing was measured."
_UNTIMED = (
    "By the times of its kernels {:.2f} times as fast as ONNX Runtime's own, whose times are estimated; the models "
    "were not timed, as this ONNX Runtime does not run on the GPU."
)


@dataclass(frozen=True, slots=True)
class Built:
    """A plan as files in the staging folder.

    Attributes:
        plan: what was built.
        bodies: the generated candidates of the plan, cut out of the graph.
        kernels: for each digest of the plan the kernel that runs.
        domain: of the custom operators.
        model: the ONNX file.
        compared: the same as outputs are compared: what random operators draw is given.
        flat: `compared` with the bodies of control flow beside it, so that all kernels run; equal without such bodies.
        library: the shared library; None if no kernel of ours runs.
    """

    plan: Plan
    bodies: Mapping[Candidate, KernelBody]
    kernels: Mapping[str, GeneratedKernel]
    domain: str
    model: Path
    compared: Path
    flat: Path
    library: Path | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is to be written, and why.

    Attributes:
        built: the optimised model; None if the input is to be written unchanged.
        reason: one sentence.
        verdicts: the comparisons of outputs that were made.
        comparison: the timing end to end, if one was made.
        guilty: kernels that were left out because they failed, each with the reason.
        contest: the plans that were timed against each other before that.
        predicted_us: the sum of the kernels' times of the plan that `comparison` is about, if it has kernels.
    """

    built: Built | None
    reason: str
    verdicts: tuple[Verdict, ...] = ()
    comparison: Comparison | None = None
    guilty: tuple[tuple[str, str], ...] = ()
    contest: tuple[ContestantRecord, ...] = ()
    predicted_us: float | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """Builds and checks plans for one model.

    Attributes:
        settings: tolerances, threads, the output's path.
        prepared: the loaded model: what outputs are compared with.
        ways: to write the model with the bodies of its control flow.
        laboratory: knows the kernels.
        staged: folder for the files, on the same file system as the output.
        progress: told what happens.
    """

    settings: Settings
    prepared: Prepared
    ways: Ways
    laboratory: Laboratory
    staged: Path
    progress: Progress

    @property
    def execution(self) -> Execution:
        """How models run on this machine."""
        return self.laboratory.bench.execution

    def build(self, plan: Plan) -> Built:
        """Write the model and the library of a plan into the staging folder."""
        self.progress.stage("Building the kernel library")
        chosen = [p.candidate for p in plan.kernels if p.candidate.kind is CandidateKind.GENERATED]
        kernels = {c.digest: self.laboratory.best(c.digest)[0] for c in chosen}
        bodies = dict(zip(chosen, self.ways.cut_all(chosen), strict=True))
        ordered = sorted({k.name: k for k in kernels.values()}.values(), key=lambda k: k.name)
        domain = DOMAIN_PREFIX + hashlib.sha256("\n".join(k.name for k in ordered).encode()).hexdigest()[:8]
        library = None if not ordered else self.staged / self._library.name
        if library is not None:
            comments = {kernels[d].name: f"Computes {names}." for d, names in self._computed(chosen).items()}
            self.laboratory.ship(domain, ordered, comments, library)
        unrolled = self.prepared.unrolled
        source = unrolled.model.path.parent
        proto = build_model(self.ways.model, self.ways.graph, plan, bodies, kernels, domain)
        model = self.staged / self.settings.output.name
        whole = enclose(proto, unrolled, domain, self.ways.model)
        save_model(whole, source, model)
        compared = flat = model
        if self.prepared.random:
            compared = flat = self._aside("compared", with_given(whole, self.prepared.random))
        if unrolled.bodies:
            flat = self._aside("flat", with_given(proto, self.prepared.random))
        return Built(plan, bodies, kernels, domain, model, compared, flat, library)

    def is_written(self, plan: Plan) -> bool:
        """Whether a plan only runs operators that the model was loaded with."""
        written = len(self.prepared.unrolled.flat.operators) if self.ways.members[0].name == WRITTEN else 0
        return all(o < written for p in plan.kernels for o in p.candidate.operators) and all(
            p.candidate.kind is not CandidateKind.GENERATED for p in plan.kernels
        )

    def _aside(self, folder: str, proto: object) -> Path:
        """Write a model that is compared and not delivered."""
        path = self.staged / folder / self.settings.output.name
        path.parent.mkdir(exist_ok=True)
        save_model(proto, self.prepared.unrolled.model.path.parent, path)
        return path

    def verify(self, built: Built) -> tuple[Verdict, ...]:
        """Compare the outputs with the input model's without optimisations: with the library, and without.

        A body of control flow may not run on the inputs at hand, so that all bodies are run on their own as well.
        """
        self.progress.stage("Comparing the outputs")
        ways: list[tuple[str, Runnable, Path, Path | None]] = [
            ("with the library", self.prepared.compared, built.compared, built.library),
            ("without the library", self.prepared.compared, built.compared, None),
        ]
        if not self.execution.runs_kernels:
            ways[0] = (_LOADED, *ways[0][1:])  # the functions run, which needs no provider but the CPU's
        if not self.execution.registers:
            ways = ways[1:]
        if built.library is None:
            ways = [("rewritten", self.prepared.compared, built.compared, None)]
        if built.flat != built.compared:
            ways.append((_BODIES, self.prepared.flat_compared, built.flat, built.library))
        return tuple(
            verify_models(
                Subject("input", reference.path, None, optimize=False),
                Subject("output", model, library, True, self.execution.provider),
                reference.feeds,
                rtol=self.settings.rtol,
                atol=self.settings.atol,
                variant=variant,
                threads=self.settings.threads,
            )
            for variant, reference, model, library in ways
        )

    def excused(self, verdicts: Sequence[Verdict]) -> Verdict | None:
        """Compare the input model's outputs with and without optimisations; return that if it excuses the output.

        Asked where no kernel is guilty: the kernels are right then, and what differs is the order of sums.
        """
        whole = self.prepared.compared
        own = verify_models(
            Subject("input", whole.path, None, optimize=False),
            Subject("input, optimised by ONNX Runtime", whole.path, None, True, self.execution.provider),
            whole.feeds,
            rtol=self.settings.rtol,
            atol=self.settings.atol,
            variant="ONNX Runtime's own optimisations of the input",
            threads=self.settings.threads,
        )
        failed = [verdict for verdict in verdicts if not verdict.passed]
        if any(verdict.variant == _BODIES for verdict in failed) or not all(no_worse(v, own) for v in failed):
            return None
        return own

    def blame(self, built: Built) -> tuple[tuple[str, str], ...]:
        """Return the kernels that compute something else than their functions do, each with a sentence."""
        if built.library is None or not self.execution.runs_kernels:
            return ()
        return find_guilty(
            built.flat,
            built.library,
            built.domain,
            self.prepared.flat_compared.feeds,
            rtol=self.settings.rtol,
            atol=self.settings.atol,
            threads=self.settings.threads,
            provider=self.execution.provider,
        )

    def judged(self, built: Built) -> Outcome:
        """Keep a plan only if it is faster end to end than what ONNX Runtime makes of the input by default."""
        comparison = self._compared(built)
        ratio = comparison.ratios[0]
        predicted_us = None if built.library is None else built.plan.cost_us
        if ratio.low > 1.0:
            reason = f"{ratio.value:.2f} times as fast as the input model, in {ratio.pairs} alternating blocks."
            return Outcome(built, reason, comparison=comparison, predicted_us=predicted_us)
        reason = (
            f"The best plan is {ratio.value:.2f} times as fast as the input (95 % interval {ratio.low:.2f} to "
            f"{ratio.high:.2f}), which is no proof of a gain; the input is written unchanged."
        )
        return Outcome(None, reason, comparison=comparison, predicted_us=predicted_us)

    def estimated(self, built: Built, vendor_us: float) -> Outcome:
        """Keep a plan on estimates, where neither model can run as it will be deployed."""
        ratio = vendor_us / built.plan.cost_us if built.plan.cost_us > 0 else 1.0
        gpu = self.laboratory.bench.estimated_for
        return Outcome(built, _UNTIMED.format(ratio) if gpu is None else _ESTIMATED.format(ratio, gpu))

    def _compared(self, built: Built) -> Comparison:
        """Time both models in alternating blocks, as ONNX Runtime runs them by default.

        A gain has to show twice, because processes differ and a busy machine favours one of two equal models now and
        then; the worse result counts.

        The figures stay in the store, so that the same two models on the same machine get the same answer again.
        """
        store, identity = self.laboratory.bench.store, self.laboratory.bench.identity
        whole = self.prepared.whole
        files = [whole.path, built.model, *([] if built.library is None else [built.library])]
        digests = [file_digest(path) for path in files]
        key = f"comparison/{'/'.join(digests)}/{identity}"
        subjects = (
            Subject("input", whole.path, None, True, self.execution.provider),
            Subject("output", built.model, built.library, True, self.execution.provider),
        )

        def measure() -> Comparison:
            self.progress.stage("Timing both models end to end")
            comparison = self._timed(subjects)
            if comparison.ratios[0].low <= 1.0:
                return comparison
            return min(comparison, self._timed(subjects), key=lambda found: found.ratios[0].low)

        return kept(store, key, measure, encode_comparison, decode_comparison)

    def _timed(self, subjects: Sequence[Subject]) -> Comparison:
        """Time the input and a plan, each in a fresh process; longer where the first blocks leave it open."""
        for seconds in _COMPARE_SECONDS:
            comparison = compare_speed(
                subjects,
                self.prepared.whole.feeds[0],
                threads=self.settings.threads,
                seconds=seconds,
                progress=self.progress,
            )
            ratio = comparison.ratios[0]
            if not ratio.low <= 1.0 < ratio.high:
                break
        return comparison

    def write(self, outcome: Outcome) -> tuple[Path, ...]:
        """Move the files to where they belong, all or none; return their paths, the model first."""
        output = self.settings.output
        files: dict[Path, Path] = {}
        if outcome.built is None:
            model = self.staged / "unchanged" / output.name
            model.parent.mkdir(exist_ok=True)
            copy_model(self.settings.source, model)
        else:
            model = outcome.built.model
            if outcome.built.library is not None:
                files[self._library] = outcome.built.library
        external = model.with_name(f"{model.name}.data")
        if external.exists():
            files[output.with_name(external.name)] = external
        document = self.staged / self._plan.name
        document.write_text(self._document(outcome), encoding="utf-8")
        files[self._plan] = document
        files[output] = model
        # The library that an earlier run left beside the output belongs to what is overwritten now.
        stale = self._library not in files and self._is_ours(plan_beside(output))
        write_set(files)
        if stale:
            self._library.unlink(missing_ok=True)
        return tuple(sorted(files, key=lambda path: (path != output, path.name)))

    @property
    def source_digest(self) -> str:
        """SHA-256 of the input file."""
        return file_digest(self.settings.source)

    def _is_ours(self, document: Path) -> bool:
        """Whether an earlier run wrote this plan."""
        return document.is_file() and PLAN_SCHEMA in document.read_text(encoding="utf-8", errors="replace")

    @property
    def _library(self) -> Path:
        return self.settings.library

    @property
    def _plan(self) -> Path:
        return self.settings.document

    def _computed(self, chosen: Sequence[Candidate]) -> dict[str, str]:
        """For each digest, the names of the ONNX nodes that its kernel computes, all places together."""
        names: dict[str, dict[str, None]] = {}
        nodes = self.ways.model.operators
        for candidate in chosen:
            operators = sorted({self.ways.graph.values[v].operator for v in candidate.body})
            names.setdefault(candidate.digest, {}).update((nodes[o].name, None) for o in operators)
        return {digest: ", ".join(found) for digest, found in names.items()}

    def _document(self, outcome: Outcome) -> str:
        source = self.source_digest
        built = outcome.built
        whole = self.prepared.unrolled.model
        shapes = {name: whole.types[name].shape for name in whole.inputs}
        plan, kernels, domain = (None, {}, None) if built is None else (built.plan, built.kernels, built.domain)
        names = [way.name for way in self.ways.members]
        ways = self.ways
        made_with = {**self.laboratory.made_with(), **({"portable": True} if self.settings.portable else {})}
        work = {} if built is None else {c.digest: work_of(body) for c, body in built.bodies.items()}
        return plan_document(
            ways.model, source, outcome.reason, plan, kernels, domain, ways.graph, shapes, names, made_with, work
        )
