"""The work of one step: every term of its price, for a model on a node with a configuration.

Terms are seconds by the data sheet (bytes over bandwidth, operations over peak, counts) with the
names of the factors that measurements put on them. They are computed once per configuration; a
step is then a few dozen multiplications.
"""

import math
from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from api_schemas.engine import EngineConfig
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Gpu, Node
from service.tuning.latency import price
from service.tuning.latency.attention_work import AttentionPlace, attention_terms, longest_reach
from service.tuning.latency.classes import era_of, eras_until, generation_of
from service.tuning.latency.coefficients import Coefficients
from service.tuning.latency.collectives import Communication, communication_terms
from service.tuning.latency.matrices import Matrices, Operator, rank_matrices
from service.tuning.latency.term import Term
from service.tuning.models.spec import DenseFeedForward, MixtureOfExperts, ModelSpec

Floats = NDArray[np.float64]
_ACTIVATION_BYTES = 2
_ROCM_KERNEL = "0.6.2"
"""Since then query heads share what they read of the cache on ROCm (vLLM PR 8310)."""
_HIDDEN_PASSES = 8
"""Times a layer reads or writes the hidden state outside matrix products: two norms with their
residuals, quantisation of the inputs."""
_PAIRS = {
    "attention": (price.ATTENTION_READ, price.ATTENTION_TOKEN),
    "mlp": (price.MLP_READ, price.MLP_TOKEN),
    "experts": (price.EXPERT_READ, price.EXPERT_TOKEN),
    "head": (price.HEAD_READ, price.HEAD_ROW),
}


class StepWork(msgspec.Struct, frozen=True, kw_only=True):
    """Terms and shape of a configuration's steps, and what the API server adds to a request."""

    terms: tuple[Term, ...]
    log_miss: float
    """log(1 - k/E): how fast the untouched experts vanish with tokens; 0 without experts."""
    expert_ranks: float
    verify_tokens: float
    stages: float
    max_capture_tokens: float
    window_tokens: float
    tokens_per_step: float
    """Tokens that a sequence gains per step: one, more with speculation."""
    front_end: tuple[str, ...]
    """Factors of the constant that the front end adds to TTFT, seconds."""
    front_end_token: tuple[str, ...]
    burst: tuple[str, ...]
    """Factors of what taking in one request holds up the next, seconds."""
    open_burst: tuple[str, ...]
    """The same where requests come at times of their own."""
    start: tuple[str, ...]
    """Factors of what the requests that a run begins with wait for, seconds."""
    classes: tuple[str, ...]
    """Generation, era, number formats, attention kinds: what a fit must have seen."""
    hardware: str
    """Generation and market of the GPU."""
    configuration: str
    """Shape and number format of the model, and the GPU: what a measurement was made of."""
    is_unmeasured: bool
    """Uses parallelism or speculation that hardly any measurement covers."""


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """Draft tokens per step and the share of them that is accepted."""

    num_tokens: int
    acceptance: float
    draft_layers: float
    """Cost of one draft token in layers of the target model."""


def price_array(work: StepWork, coefficients: Coefficients) -> Floats:
    """Return the kernel's array of prices."""
    prices = np.zeros(price.PRICE_SIZE)
    for term in work.terms:
        prices[term.component] += term.seconds * coefficients.product(term.factors)
    prices[price.LOG_MISS] = work.log_miss
    prices[price.EXPERT_RANKS] = work.expert_ranks
    prices[price.VERIFY] = work.verify_tokens
    prices[price.STAGES] = work.stages
    prices[price.MAX_CAPTURE] = work.max_capture_tokens
    prices[price.WINDOW] = work.window_tokens
    return prices


def step_work(
    *,
    spec: ModelSpec,
    node: Node,
    config: EngineConfig,
    version: EngineVersion,
    speculation: Speculation | None = None,
) -> StepWork:
    """Return the work of one engine's steps with this effective configuration."""
    place = _Place(spec, node=node, config=config, version=version)
    draft = speculation.num_tokens if speculation else 0
    terms = tuple(place.terms(draft_layers=speculation.draft_layers * draft if speculation else 0))
    experts = _experts_of(spec)
    accepted = speculation.acceptance * draft if speculation else 0.0
    return StepWork(
        terms=terms,
        log_miss=_log_miss(experts),
        expert_ranks=float(place.expert_data_parallel),
        verify_tokens=1.0 + draft,
        stages=float(place.pipeline),
        max_capture_tokens=float(config.max_cudagraph_capture_size or 0),
        window_tokens=float(longest_reach(spec.layers)),
        tokens_per_step=1.0 + accepted,
        front_end=("front_end", f"front_end.{place.era}"),
        front_end_token=("front_end_token", f"front_end.{place.era}"),
        burst=place.burst(),
        open_burst=("burst", f"front_end.{place.era}"),
        start=("start",),
        classes=place.classes(),
        hardware=f"{place.generation}.{node.gpu.gpu_class}",
        configuration=place.configuration(),
        is_unmeasured=speculation is not None or place.is_unmeasured(),
    )


class _Place:
    """One configuration with its sizes resolved."""

    def __init__(
        self, spec: ModelSpec, *, node: Node, config: EngineConfig, version: EngineVersion
    ) -> None:
        self.spec, self.node, self.config = spec, node, config
        self.tensor = max(config.tensor_parallel_size or 1, 1)
        self.pipeline = max(config.pipeline_parallel_size or 1, 1)
        self.data = max(config.data_parallel_size or 1, 1)
        self.expert_data_parallel = self.data if spec.is_moe else 1
        self.version, self.era = version, era_of(version)
        self.eras = eras_until(version)
        self.generation = generation_of(node.gpu)
        self.bandwidth = node.gpu.bandwidth_gb_s * 1e9
        self.peak = ("compute.half_rate",) if node.gpu.gpu_class == "consumer" else ()
        self.flops_16bit = max(node.gpu.dense_16bit_tflops, 1e-3) * 1e12
        self.matrices = rank_matrices(
            spec,
            tensor_parallel_size=self.tensor,
            pipeline_parallel_size=self.pipeline,
            expert_data_parallel_size=self.expert_data_parallel,
        )

    def terms(self, *, draft_layers: float) -> Iterator[Term]:
        """Yield every term of one stage, with what stages lose to waiting for each other."""
        for term in self._stage_terms(draft_layers=draft_layers):
            if self.pipeline > 1:
                yield msgspec.structs.replace(term, factors=(*term.factors, "pipeline"))
            else:
                yield term

    def _stage_terms(self, *, draft_layers: float) -> Iterator[Term]:
        for operator in self.matrices.operators:
            yield from self._matrix(operator)
        for group in self.spec.layers:
            yield from attention_terms(
                group, count=group.count / self.pipeline, place=self._attention_place()
            )
        yield from self._activations()
        yield from communication_terms(self._communication(), node=self.node)
        yield from self._fixed(draft_layers=draft_layers)

    def classes(self) -> tuple[str, ...]:
        """Return what decides whether measurements of the kind exist."""
        formats = {f"{op.part}.{op.scheme}@{self.generation}" for op in self.matrices.operators}
        mixers = {type(group.mixer).__name__ for group in self.spec.layers if group.mixer}
        return tuple(sorted({self.generation, self.era, *formats, *mixers}))

    def configuration(self) -> str:
        """Return what tells the model and its GPU from others, whatever its name."""
        spec = self.spec
        main = max(self.matrices.operators, key=lambda operator: operator.bytes)
        shape = f"{spec.num_layers}x{spec.hidden_size}x{spec.vocab_size}"
        return f"{shape} {main.scheme} on {self.node.gpu.name}"

    def is_unmeasured(self) -> bool:
        """Return whether ranks work together in a way that hardly any measurement covers."""
        ranks = self.tensor * self.pipeline
        return (
            self.expert_data_parallel > 1
            or (self.config.decode_context_parallel_size or 1) > 1
            or ranks > self.node.gpus_per_node
        )

    def burst(self) -> tuple[str, ...]:
        """Return the factors of taking in one request: hosts differ, and ranks must be told."""
        names = ("burst", f"burst@{self.generation}", f"front_end.{self.era}")
        return (*names, "burst.group") if self.tensor * self.pipeline > 1 else names

    def _of_eras(self, family: str) -> tuple[str, ...]:
        """Return the factors of what each era changed, up to this release."""
        return tuple(f"{family}.{era}" for era in self.eras)

    def _matrix(self, operator: Operator) -> Iterator[Term]:
        read, token = _PAIRS[operator.part]
        prefix = "expert_" if operator.part == "experts" else ""
        scheme, rate = compute_format(operator.scheme, self.node.gpu)
        at = self.generation
        yield Term(
            read,
            operator.bytes / self.bandwidth,
            (f"{prefix}read", f"{prefix}read.{scheme}", f"read@{at}", f"read.{scheme}@{at}"),
        )
        names = (f"{prefix}compute", f"{prefix}compute.{scheme}", f"compute@{at}", *self.peak)
        yield Term(
            token,
            2 * operator.active_parameters / rate,
            (*names, f"{prefix}compute.{scheme}@{at}"),
        )

    def _attention_place(self) -> AttentionPlace:
        return AttentionPlace(
            bandwidth=self.bandwidth,
            flops_16bit=self.flops_16bit,
            tensor_parallel_size=self.tensor,
            decode_context_parallel_size=max(self.config.decode_context_parallel_size or 1, 1),
            kv_cache_dtype=self.config.kv_cache_dtype or "auto",
            state_element_bytes=self.spec.ssm_state_bytes,
            generation=self.generation,
            reads_per_head=self.node.gpu.vendor == "amd" and not self.version.since(_ROCM_KERNEL),
        )

    def _activations(self) -> Iterator[Term]:
        """Hidden states and intermediate results that pass through memory, per token."""
        layers = self.spec.num_layers / self.pipeline
        hidden = _HIDDEN_PASSES * layers * self.spec.hidden_size
        inner = sum(
            3 * _dense_width(group.feed_forward) / self.tensor * group.count / self.pipeline
            for group in self.spec.layers
        )
        moved = (hidden + inner) * _ACTIVATION_BYTES
        yield Term(price.ACTIVATION, moved / self.bandwidth, ("activation",))
        routed = sum(
            _routed_width(group.feed_forward, self.spec.hidden_size, ranks=self._expert_split())
            * group.count
            / self.pipeline
            for group in self.spec.layers
        )
        if routed > 0:
            seconds = routed * _ACTIVATION_BYTES / self.bandwidth
            yield Term(price.EXPERT_ACTIVATION, seconds, ("expert_activation",))

    def _expert_split(self) -> int:
        return self.tensor * self.expert_data_parallel

    def _communication(self) -> Communication:
        return Communication(
            num_layers=self.spec.num_layers / self.pipeline,
            num_expert_layers=_expert_layers(self.spec) / self.pipeline,
            hidden_size=self.spec.hidden_size,
            tensor_parallel_size=self.tensor,
            pipeline_parallel_size=self.pipeline,
            expert_data_parallel_size=self.expert_data_parallel,
            generation=self.generation,
        )

    def _fixed(self, *, draft_layers: float) -> Iterator[Term]:
        """Launches, norms, sampling and scheduling: counts whose seconds are fitted."""
        overhead = (*self._of_eras("overhead"), f"overhead@{self.generation}")
        for group in self.spec.layers:
            kind = type(group.mixer).__name__ if group.mixer else "none"
            count = group.count / self.pipeline
            yield Term(price.LAYER, count, ("layer", f"layer.{kind}", *overhead))
            launch: tuple[str, ...] = (
                "launch",
                f"launch.{kind}",
                f"launch@{self.generation}",
                *self._of_eras("launch"),
            )
            if self.config.enforce_eager:
                launch = (*launch, "launch.eager")
            yield Term(price.LAUNCH, count, launch)
            if isinstance(group.feed_forward, MixtureOfExperts):
                yield Term(price.LAUNCH, count, (*launch, "launch.experts"))
        expert_layers = _expert_layers(self.spec) / self.pipeline
        if expert_layers:
            scheme = self._expert_scheme()
            eras = self._of_eras("expert_layer")
            names = ("expert_layer", f"expert_layer.{scheme}", *eras, *overhead)
            yield Term(price.EXPERT_LAYER, expert_layers, names)
        host = ("host.async",) if self.config.async_scheduling else ()
        yield Term(price.STEP, 1.0, ("step", *overhead, *host))
        row = ("row", *self._of_eras("row"), f"overhead@{self.generation}", *host)
        yield Term(price.ROW, 1.0, row)
        if draft_layers:
            yield Term(price.STEP, draft_layers, ("layer", *overhead))

    def _expert_scheme(self) -> str:
        found = (op.scheme for op in self.matrices.operators if op.part == "experts")
        return compute_format(next(found, "16bit"), self.node.gpu)[0]


def compute_format(scheme: str, gpu: Gpu) -> tuple[str, float]:
    """Return the number format that a product runs in on this GPU, and its peak in operations/s.

    A part without the format's units computes in 16 bit after unpacking (Marlin kernels).
    """
    native = {
        "fp8": gpu.fp8_tflops,
        "fp8_block": gpu.fp8_tflops,
        "mxfp8": gpu.fp8_tflops,
        "int8_w8a8": gpu.int8_tops,
        "nvfp4": gpu.fp4_tflops,
        "mxfp4": gpu.fp4_tflops if gpu.vendor == "amd" else None,
    }.get(scheme)
    if native:
        return scheme, native * 1e12
    return _unpacked(scheme), max(gpu.dense_16bit_tflops, 1e-3) * 1e12


def _unpacked(scheme: str) -> str:
    if scheme in {"fp8", "fp8_block", "mxfp8", "int8_w8a8", "int8_w8a16"}:
        return "w8a16"
    if scheme in {"nvfp4", "nf4", "int4"}:
        return "w4a16"
    return scheme


def _experts_of(spec: ModelSpec) -> MixtureOfExperts | None:
    parts = (group.feed_forward for group in spec.layers)
    return next((part for part in parts if isinstance(part, MixtureOfExperts)), None)


def _log_miss(experts: MixtureOfExperts | None) -> float:
    if experts is None:
        return 0.0
    share = min(experts.experts_per_token / experts.num_experts, 1 - 1e-9)
    return math.log1p(-share)


def _expert_layers(spec: ModelSpec) -> int:
    return sum(g.count for g in spec.layers if isinstance(g.feed_forward, MixtureOfExperts))


def _dense_width(part: object) -> float:
    match part:
        case DenseFeedForward():
            return float(part.intermediate_size)
        case MixtureOfExperts():
            return float(part.shared_intermediate_size + part.parallel_dense_intermediate_size)
        case _:
            return 0.0


def _routed_width(part: object, hidden_size: int, *, ranks: int) -> float:
    """Return values that pass through memory per token in one expert layer on one GPU."""
    if not isinstance(part, MixtureOfExperts):
        return 0.0
    return part.experts_per_token * (2 * hidden_size + 3 * part.expert_intermediate_size / ranks)


__all__ = ["Matrices", "Speculation", "StepWork", "compute_format", "price_array", "step_work"]
