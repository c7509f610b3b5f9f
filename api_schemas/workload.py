"""What load arrives: lengths, arrivals, shared prefixes."""

from typing import Annotated, Literal

from msgspec import Meta

from api_schemas.base import Fraction, PositiveFloat, Response, TokenCount, Value
from api_schemas.explanation import Source
from api_schemas.slo import Slo

Preset = Literal[
    "chat",
    "realtime",
    "api",
    "batch",
    "long_context",
    "rag",
    "code_completion",
    "code_generation",
    "summarization",
    "agent",
    "reasoning",
]
_MAX_SAMPLES = 100_000
Tokens = Annotated[float, Meta(ge=1, le=100_000_000, description="Tokens.")]
TokenSamples = Annotated[list[TokenCount], Meta(min_length=1, max_length=_MAX_SAMPLES)]
Rate = Annotated[float, Meta(ge=1e-6, le=1e6, description="Requests per second.")]


class FixedLength(Value, frozen=True, kw_only=True, tag_field="kind", tag="fixed"):
    """Every request has this many tokens."""

    tokens: TokenCount


class UniformLength(Value, frozen=True, kw_only=True, tag_field="kind", tag="uniform"):
    """Lengths spread evenly from low to high, both included."""

    low: TokenCount
    high: TokenCount


class LognormalLength(Value, frozen=True, kw_only=True, tag_field="kind", tag="lognormal"):
    """Long-tailed lengths, given by their mean and 99th percentile."""

    mean: Tokens
    p99: Tokens


class HistogramLength(Value, frozen=True, kw_only=True, tag_field="kind", tag="histogram"):
    """Bins by upper edge with their weights."""

    upper: Annotated[list[TokenCount], Meta(min_length=1, max_length=10_000)]
    weight: Annotated[
        list[Annotated[float, Meta(ge=0, le=1e12)]], Meta(min_length=1, max_length=10_000)
    ]


class SampleLengths(Value, frozen=True, kw_only=True, tag_field="kind", tag="samples"):
    """Measured lengths, drawn from with equal weight."""

    tokens: TokenSamples


RunRequests = Annotated[
    int,
    Meta(
        ge=1,
        le=10_000_000,
        description="Requests of a run that ends. Absent means a service that goes on: throughput "
        "and requests in flight are those of its steady part, without a beginning and an end.",
    ),
]

LengthDistribution = FixedLength | UniformLength | LognormalLength | HistogramLength | SampleLengths
Lengths = TokenCount | LengthDistribution


class PoissonArrivals(Value, frozen=True, kw_only=True, tag_field="kind", tag="poisson"):
    """Independent arrivals at a mean rate."""

    requests_per_s: Rate
    num_requests: RunRequests | None = None


class GammaArrivals(Value, frozen=True, kw_only=True, tag_field="kind", tag="gamma"):
    """Arrivals with a burstiness as in vLLM's benchmark: gamma shape, 1 is Poisson."""

    requests_per_s: Rate
    burstiness: Annotated[float, Meta(ge=0.01, le=1000)]
    num_requests: RunRequests | None = None


class ClosedLoop(Value, frozen=True, kw_only=True, tag_field="kind", tag="closed_loop"):
    """A fixed number of requests in flight; each finished one is replaced."""

    max_concurrency: Annotated[int, Meta(ge=1, le=1_000_000)]
    num_requests: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=10_000_000,
                description="Requests of the whole run; absent means ten for each in flight. Of a "
                "short run the beginning and the end are a large part.",
            ),
        ]
        | None
    ) = None


class BatchArrivals(Value, frozen=True, kw_only=True, tag_field="kind", tag="batch"):
    """All requests at once."""

    num_requests: Annotated[int, Meta(ge=1, le=10_000_000)]


class Users(Value, frozen=True, kw_only=True, tag_field="kind", tag="users"):
    """People, converted to a rate: users x active share x requests per minute / 60 x peak."""

    users: Annotated[int, Meta(ge=1, le=10**9)]
    active_fraction: Fraction | None = None
    requests_per_active_user_per_min: PositiveFloat | None = None
    peak_factor: Annotated[float, Meta(ge=1, le=1000)] | None = None


class Trace(Value, frozen=True, kw_only=True, tag_field="kind", tag="trace"):
    """Recorded arrivals, one entry per request in each list."""

    at_s: Annotated[
        list[Annotated[float, Meta(ge=0, le=1e9)]], Meta(min_length=1, max_length=_MAX_SAMPLES)
    ]
    prompt_tokens: TokenSamples
    output_tokens: TokenSamples


Arrivals = PoissonArrivals | GammaArrivals | ClosedLoop | BatchArrivals | Users | Trace


class Workload(Value, frozen=True, kw_only=True):
    """The load; what is given overrides the preset."""

    preset: Preset | None = None
    prompt_tokens: Lengths | None = None
    output_tokens: Lengths | None = None
    arrivals: Arrivals | None = None
    shared_prefix_tokens: Annotated[int, Meta(ge=0, le=100_000_000)] | None = None
    max_request_tokens: TokenCount | None = None


class PresetDescription(Response, frozen=True, kw_only=True):
    """A named workload with its usual targets and where the figures come from."""

    name: Preset
    title: str
    workload: Workload
    slo: Slo
    source: list[Source]
