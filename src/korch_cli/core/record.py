"""What the commands found out, in a form that `report` renders as text or JSON."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Samples:
    """Times of one model or kernel, in microseconds, raw."""

    name: str
    times_us: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster the second of two is than the first: the median over pairs, with a 95 % interval."""

    value: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several models timed in alternating blocks; `ratios[i]` compares `samples[0]` with `samples[i + 1]`.

    Attributes:
        warnings: reasons why the figures may not mean what they seem to (a loaded machine, a wide spread).
    """

    samples: tuple[Samples, ...]
    ratios: tuple[Ratio, ...]
    threads: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Contest:
    """Several models timed in alternating blocks, each compared with each.

    Attributes:
        samples: of each model.
        ratios: `ratios[i][j]` says how many times as fast as model i model j is.
    """

    samples: tuple[Samples, ...]
    ratios: tuple[tuple[Ratio, ...], ...]


@dataclass(frozen=True, slots=True)
class ContestantRecord:
    """One of the plans that were built and timed as a whole against each other.

    Attributes:
        name: how it was found.
        custom_nodes: how many of its nodes run generated kernels.
        predicted_us: the sum of its kernels' times; None for the simplified model, which no sum was made of.
        measured_us: the median of a run of the whole model.
        ratio: how many times as fast as the input it was in this comparison.
        chosen: whether it won: of two plans, the one with more custom nodes wins only if it is faster beyond doubt.
    """

    name: str
    custom_nodes: int
    predicted_us: float | None
    measured_us: float
    ratio: Ratio
    chosen: bool


@dataclass(frozen=True, slots=True)
class Prediction:
    """Whether times add up: the plan that was compared with the input.

    Attributes:
        predicted_us: the sum of its kernels' times, as they were measured.
        measured_us: the median of a run of the whole model.
        input_us: the same sum for the input; None where its operators were estimated and not measured. The input was
            timed beside the plan, and tells how much slower or faster the machine has become since.
        ratio: predicted / measured, at one pace: `predicted_us` / `input_us` over the same quotient of what was
            measured.
    """

    predicted_us: float
    measured_us: float
    input_us: float | None
    ratio: float


@dataclass(frozen=True, slots=True)
class OutputError:
    """The worst difference in one output tensor."""

    output: str
    max_abs: float
    max_rel: float
    worst_index: tuple[int, ...]
    mismatches: int
    elements: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether two models agree.

    Attributes:
        passed: all outputs of all runs are within tolerance.
        variant: what was compared, e.g. "with the library" or "without it".
        rtol: relative tolerance; `atol` the absolute one: |a - b| <= atol + rtol * |a|.
        runs: number of input sets.
        worst: for each output, its worst difference over the runs.
        failure: one sentence if there was nothing to compare, or not the same things: a model did not run, or the
            outputs differ in number, shape or element type; None otherwise.
    """

    passed: bool
    variant: str
    rtol: float
    atol: float
    runs: int
    worst: tuple[OutputError, ...]
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class NodeTime:
    """What one node of a model costs as ONNX Runtime executes it, after its own optimisations.

    Attributes:
        name: of the node.
        op_type: its operator; fused ones have names of ONNX Runtime's own.
        domain: of the operator, "" for ONNX's default one.
        time_us: the median over runs of the time that one run of the model spends in the node.
        share: of the time of all nodes, 0 to 1.
    """

    name: str
    op_type: str
    domain: str
    time_us: float
    share: float


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A generated kernel as it runs in a model, and how far from the machine's limits that is.

    Attributes:
        name: of the custom operator.
        uses: nodes of the model that ran it.
        nodes: for each use in the plan, names of the nodes of the input model of which it computes all or a part.
        schedule: the variant in words.
        bytes_moved: operands read once, as far as results depend on them, and results written once.
        flops: arithmetic of one use, in units of a float32 addition.
        time_us: one use, the mean over all of them, in place.
        limit_us: what one use takes at least on this machine.
        limited_by: "memory" or "arithmetic": which of the two takes longer at least.
        share_of_limit: limit / time, 1.0 is the machine's limit.
    """

    name: str
    uses: int
    nodes: tuple[tuple[str, ...], ...]
    schedule: str
    bytes_moved: int
    flops: float
    time_us: float
    limit_us: float
    limited_by: str
    share_of_limit: float


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One generated kernel of the plan.

    Attributes:
        name: of the custom operator.
        nodes: names of the ONNX nodes of which it computes all or a part.
        schedule: the variant that won.
        uses: how many nodes of the output model run it.
        time_us: measured, one run.
        alternative_us: ONNX Runtime's own nodes for the same, measured beside it; None if they could not be.
        bytes_moved: operands read once, as far as results depend on them, and results written once.
        flops: arithmetic of one run, in units of a float32 addition.
        share_of_limit: bound / measured, 1.0 is the machine's limit; None where a plan was built again.
        source: whether `time_us` is "measured" or "estimated".
        registers: of a thread, in the function that needs most; None but for CUDA.
        spill_bytes: of a thread, stored and loaded because registers do not suffice; None but for CUDA.
    """

    name: str
    nodes: tuple[str, ...]
    schedule: str
    uses: int
    time_us: float
    alternative_us: float | None
    bytes_moved: int
    flops: float
    share_of_limit: float | None
    source: str = "measured"
    registers: int | None = None
    spill_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """How the plan was found.

    Attributes:
        plan_us: what the plan takes by the sum of its kernels' times, in microseconds.
        bound_us: no plan of these candidates takes less.
        vendor_us: the same sum for the best plan of ONNX Runtime's own kernels.
        alone_us: the same sum for the best plan that takes only one of the ways to write the model, by the way's name;
            empty where there is one way only.
        tried: how many of the distinct candidates have a time, measured or from the store, or were refused.
    """

    operators: int
    primitives: int
    candidates: int
    distinct: int
    measured: int
    from_store: int
    rejected: dict[str, int]
    rounds: int
    solver_status: str
    plan_us: float
    bound_us: float
    vendor_us: float
    gap: float
    solve_seconds: float
    tried: int
    alone_us: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OptimizeRecord:
    """The result of `korch optimize`.

    Attributes:
        model: path of the input.
        written: paths of the files that were written, the model first.
        changed: whether the output differs from the input model.
        reason: one sentence: why the output is what it is.
        opaque: (operator type, count, reason) of what was left alone.
        guilty: names of kernels that were left out because they failed a check, each with the reason.
        seconds: wall time of the whole command by stage.
        contest: the plans that were timed against each other; none if there was only one.
        prediction: of the plan that `comparison` is about; None if that has no kernels or was not timed.
        estimated_for: the GPU that the times of kernels are estimated for; None where they were measured.
    """

    model: str
    written: tuple[str, ...]
    changed: bool
    reason: str
    search: SearchRecord
    kernels: tuple[KernelRecord, ...]
    verdicts: tuple[Verdict, ...]
    comparison: Comparison | None
    opaque: tuple[tuple[str, int, str], ...]
    guilty: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    environment: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)
    contest: tuple[ContestantRecord, ...] = ()
    prediction: Prediction | None = None
    estimated_for: str | None = None


@dataclass(frozen=True, slots=True)
class DryRunRecord:
    """What `korch optimize` would have to do for a model, and what it could gain.

    Attributes:
        model: path of the input.
        opaque: (operator type, count, reason) of what would be left alone.
        candidates: all candidate kernels, those of ONNX Runtime included.
        distinct: different ones among those that would be generated.
        rejected: how many primitives or sets of them were left out, by reason.
        looked_up: distinct candidates whose kernels were looked up in the store.
        kernels: how many kernels these have: one for each schedule.
        stored: of how many of them the store has figures.
        vendor_us: what the best plan of ONNX Runtime's own kernels takes.
        bound_us: no plan takes less.
        hopeless: whether the bound is so near that nothing would be measured.
        searched: whether an earlier search for the same came to its end, so that a run would only repeat its result.
        to_measure: kernels that a search would measure, roughly.
        search_seconds: what it would take until its end, roughly; the budget at most.
        budget_s: the budget.
        seconds: wall time of the command by stage.
    """

    model: str
    operators: int
    primitives: int
    opaque: tuple[tuple[str, int, str], ...]
    candidates: int
    distinct: int
    rejected: dict[str, int]
    looked_up: int
    kernels: int
    stored: int
    vendor_us: float
    bound_us: float
    hopeless: bool
    searched: bool
    to_measure: int
    search_seconds: float
    budget_s: float
    notes: tuple[str, ...]
    environment: dict[str, str]
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class PartRecord:
    """How large a model is.

    Attributes:
        nodes: in the graph.
        inputs: of the graph, initializers that are inputs too aside.
        outputs: of the graph.
        weights: initializers.
        size_bytes: of the file and its external data together.
    """

    nodes: int
    inputs: int
    outputs: int
    weights: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReduceRecord:
    """The result of `korch reduce`.

    Attributes:
        model: path of the whole model.
        written: paths of the files that were written, the model first; none if there was nothing to reduce.
        check: the command, in words.
        check_status: the exit status of the check that counts as failing.
        reduced: whether a failing part was found, which may be the whole model.
        ended: why the search ended: "minimal", "budget", "interrupted", "terminated", or "nothing" to reduce.
        reason: one sentence.
        before: the whole model.
        after: the part; equal to `before` if there was nothing to reduce.
        operators: types of the part's nodes, in order.
        message: the last line, indented ones aside, that the check wrote on the part, or else on the whole model.
        trials: runs of the check on parts.
        seconds: wall time.
    """

    model: str
    written: tuple[str, ...]
    check: tuple[str, ...]
    check_status: int
    reduced: bool
    ended: str
    reason: str
    before: PartRecord
    after: PartRecord
    operators: tuple[str, ...]
    message: str
    trials: int
    seconds: float
