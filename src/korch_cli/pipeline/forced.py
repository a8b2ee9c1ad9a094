"""Fusion whatever it costs: everything the code generator accepts goes into generated kernels, and nothing is timed.

This is how tests reach every kernel; a user has no use for the models that it makes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from korch_cli.candidates import SearchLimits, candidate_of, cut, enumerate_candidates, single_nodes, single_operators
from korch_cli.codegen import generate, headers
from korch_cli.core.artifact import KernelResult, LibraryEntry
from korch_cli.core.check import check
from korch_cli.core.errors import KorchError, Refusal
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import DOMAIN_PREFIX, Candidate, CandidateKind, Kernel, KernelBody, Timing, TimingSource
from korch_cli.core.launch import GeneratedKernel
from korch_cli.core.model import Bindings, Model, UnrolledModel
from korch_cli.core.plan import Plan, Priced
from korch_cli.core.progress import Progress, Silent
from korch_cli.emit import build_model, can_be_function, enclose, save_model
from korch_cli.fission import fission
from korch_cli.load import load, unroll
from korch_cli.pipeline.laboratory import Bench, Laboratory, compile_registration
from korch_cli.pipeline.search import Search
from korch_cli.pipeline.settings import Settings
from korch_cli.pipeline.ways import Ways, cheapest
from korch_cli.rewrite import rewrite
from korch_cli.solve import check_plan, solve
from korch_cli.toolchain import BuildFailure, Compiler, compile_units, link

KERNEL_US, OPERATOR_US = 1.0, 1000.0
"""What a generated kernel and a primitive in one of ONNX Runtime's own count for: as few as possible are left to it."""
_SOLVER_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Fusion:
    """A model with its forced plan.

    Attributes:
        model: the loaded model, with the bodies of its control flow.
        graph: the primitives of all that.
        plan: the kernels that run.
        bodies: the generated candidates of the plan, cut out of the graph.
        chosen: for each digest of the plan, the kernel.
        rejected: distinct candidates that the code generator or the standard operators refuse, by sentence.
    """

    model: UnrolledModel
    graph: PrimitiveGraph
    plan: Plan
    bodies: Mapping[Candidate, KernelBody]
    chosen: Mapping[str, Kernel]
    rejected: Mapping[str, int]

    @property
    def kernels(self) -> int:
        """How many custom nodes the output has."""
        return len(self.bodies)


def plan_fusion(source: Path, bindings: Bindings, *, max_primitives: int = 16) -> Fusion:
    """Load a model and plan it so that as little as possible is left to ONNX Runtime's own kernels.

    Raises:
        KorchError: as `load` does.
    """
    unrolled = unroll(load(source, bindings))
    model = unrolled.flat
    graph = rewrite(fission(model))
    check(graph)
    candidates = enumerate_candidates(graph, SearchLimits(max_primitives=max_primitives)).candidates
    opset = model.opsets.get("", 1)
    candidates, rejected = _sayable(graph, candidates, opset)
    representatives = {c.digest: c for c in reversed(candidates)}
    vendor = forced_vendor(model, graph)
    kernels: dict[str, Kernel] = {}
    while True:
        # Text is made for what a plan wants, because there are many more candidates than that.
        plan = solve(graph, [*vendor, *(Priced(c, KERNEL_US) for c in candidates)], time_limit_s=_SOLVER_SECONDS)
        generated = [p.candidate for p in plan.kernels if p.candidate.kind is CandidateKind.GENERATED]
        wanted = {c.digest: representatives[c.digest] for c in generated if c.digest not in kernels}
        accepted, refused = accepted_kernels(partial(cut, graph), wanted, opset)
        kernels |= accepted
        rejected += refused
        if not refused:
            break
        candidates = tuple(c for c in candidates if c.digest in kernels or c.digest not in wanted)
    check_plan(graph, plan)
    bodies = {c: cut(graph, c) for c in generated}
    return Fusion(unrolled, graph, plan, bodies, {c.digest: kernels[c.digest] for c in generated}, rejected)


def _sayable(
    graph: PrimitiveGraph, candidates: tuple[Candidate, ...], opset: int
) -> tuple[tuple[Candidate, ...], Counter[str]]:
    """Leave out every candidate with a primitive that standard operators cannot say; count what is left out."""
    unsayable: dict[int, str] = {}
    for candidate in candidates:
        if len(candidate.body) == 1:
            sentence = can_be_function(cut(graph, candidate), opset)
            unsayable |= {} if sentence is None else dict.fromkeys(candidate.body, sentence)
    kept: list[Candidate] = []
    rejected: dict[str, str] = {}
    for candidate in candidates:
        sentence = next((unsayable[v] for v in sorted(candidate.body) if v in unsayable), None)
        if sentence is None:
            kept.append(candidate)
        else:
            rejected[candidate.digest] = sentence
    return tuple(kept), Counter(rejected.values())


def fused_model(fusion: Fusion, domain: str) -> object:
    """Return the output model, an `onnx.ModelProto`, with custom operators of `domain`.

    Raises:
        Refusal: a body has no function at the model's opset.
    """
    flat = build_model(fusion.model.flat, fusion.graph, fusion.plan, fusion.bodies, fusion.chosen, domain)
    return enclose(flat, fusion.model, domain)


def build_fusions(
    fusions: Sequence[Fusion], outputs: Sequence[Path], library: Path, compiler: Compiler, objects: Path, jobs: int
) -> None:
    """Write one model for each fusion, and one kernel library for all of them.

    Args:
        fusions: what to build.
        outputs: the model to write for each.
        library: the shared library to write.
        compiler: builds the kernels.
        objects: folder in which compiled kernels are kept.
        jobs: compilers that run at the same time.

    Raises:
        KorchError: a kernel does not compile, or a file cannot be written.
    """
    entries: dict[str, LibraryEntry] = {}
    for fusion in fusions:
        for candidate, body in fusion.bodies.items():
            kernel = fusion.chosen[candidate.digest]
            entries.setdefault(kernel.name, LibraryEntry.of(body, kernel))
    ordered = [entries[name] for name in sorted(entries)]
    domain = DOMAIN_PREFIX + hashlib.sha256("\n".join(sorted(entries)).encode()).hexdigest()[:8]
    units = {e.kernel.name: e.kernel.source for e in ordered}
    built = compile_units(compiler, units, headers(), objects, jobs=jobs, progress=Silent())
    built["registration"] = compile_registration(compiler, domain, ordered, {}, objects, Silent())
    for name, result in built.items():
        if isinstance(result, BuildFailure):
            raise KorchError(f"the kernel {name} does not compile: {result.sentence}")
    link(compiler, [path for path in built.values() if isinstance(path, Path)], library)
    for fusion, output in zip(fusions, outputs, strict=True):
        save_model(fused_model(fusion, domain), fusion.model.model.path.parent, output)


def force_search(settings: Settings, ways: Ways, bench: Bench, deadline: float, progress: Progress) -> Search:
    """Return a search in which every accepted kernel has the same time, and every operator a longer one."""
    candidates = ways.enumerated(SearchLimits(max_primitives=settings.max_primitives))
    representatives = {c.digest: c for c in reversed(candidates.candidates)}
    progress.stage(f"Generating kernels for {len(representatives)} candidates")
    kernels, rejected = accepted_kernels(ways.cut, representatives, bench.opset)
    timing = Timing(KERNEL_US, KERNEL_US, KERNEL_US, 0, TimingSource.BOUND)
    results: dict[str, list[tuple[GeneratedKernel, KernelResult]]] = {
        digest: [(kernels[digest], KernelResult(kernels[digest].name, timing, None, None))] if digest in kernels else []
        for digest in representatives
    }
    laboratory = Laboratory(ways.cut, representatives, bench, progress, results, rejected)
    bounds = dict.fromkeys(representatives, KERNEL_US)
    vendor = [
        Priced(ways.common(at, p.candidate), p.cost_us)
        for at, way in enumerate(ways.members)
        for p in forced_vendor(way.model, way.graph)
    ]
    return Search(settings, ways.graph, cheapest(vendor), candidates, bounds, laboratory, deadline)


def accepted_kernels(
    cut_out: Callable[[Candidate], KernelBody], representatives: Mapping[str, Candidate], opset: int
) -> tuple[dict[str, Kernel], Counter[str]]:
    """Return the first kernel of every digest that can be generated and said with standard operators, and refusals."""
    kernels: dict[str, Kernel] = {}
    rejected: Counter[str] = Counter()
    for digest, candidate in representatives.items():
        body = cut_out(candidate)
        try:
            unsayable = can_be_function(body, opset)
            if unsayable is not None:
                raise Refusal(unsayable)
            kernels[digest] = generate(body)[0]
        except Refusal as refusal:
            rejected[refusal.sentence] += 1
    return kernels, rejected


def forced_vendor(model: Model, graph: PrimitiveGraph) -> tuple[Priced, ...]:
    """Return every operator, product and reshape as a kernel that a plan takes only if nothing else computes the same.

    Each costs as much as it has primitives, so that an operator around products is taken apart.
    """
    opset = model.opsets.get("", 1)
    nodes = [c for c in single_nodes(graph) if can_be_function(cut(graph, candidate_of(graph, c.body)), opset) is None]
    operators = single_operators(model, graph)
    return tuple(Priced(c, OPERATOR_US * max(1, len(c.body))) for c in (*operators, *nodes))
