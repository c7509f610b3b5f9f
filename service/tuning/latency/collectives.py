"""What GPUs tell each other in a step: all-reduces, expert exchange, pipeline hand-over."""

import math
from collections.abc import Iterator

import msgspec

from service.tuning.hardware.spec import Node
from service.tuning.latency import price
from service.tuning.latency.classes import Link, link_of
from service.tuning.latency.term import Term

_REDUCES_PER_LAYER = 2
"""After attention and after the feed-forward part (Megatron split)."""
_HOP_GROWTH = 0.15
"""Latency grows by this share per doubling of the ranks: 4.4, 4.8, 5.1 us on H100 at 2, 4, 8
(aiconfigurator-core 0.12.0, custom all-reduce tables)."""
_ACTIVATION_BYTES = 2


class Communication(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes that decide what is sent."""

    num_layers: float
    """Layers of one stage."""
    num_expert_layers: float
    hidden_size: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    expert_data_parallel_size: int
    """Data-parallel ranks that share the experts; 1 when each engine has its own."""
    generation: str


def communication_terms(sizes: Communication, *, node: Node) -> Iterator[Term]:
    """Yield latency and bandwidth terms of one stage's collectives."""
    if sizes.tensor_parallel_size > 1:
        yield from _all_reduces(sizes, node=node)
    if sizes.expert_data_parallel_size > 1 and sizes.num_expert_layers > 0:
        yield from _exchanges(sizes, node=node)
    if sizes.pipeline_parallel_size > 1:
        yield from _hand_over(sizes, node=node)


def _hops(link: Link, ranks: int) -> float:
    """Return the latency of a collective in units of that of two ranks.

    Switched links reach all ranks at once; over PCIe a ring takes its turns (5.7, 14, 28 us on
    L40S at 2, 4, 8 ranks, same tables).
    """
    if link in {"nvlink", "xgmi"}:
        return 1 + _HOP_GROWTH * math.log2(ranks)
    return ranks / 2


def _all_reduces(sizes: Communication, *, node: Node) -> Iterator[Term]:
    ranks = sizes.tensor_parallel_size
    link, bandwidth = link_of(node, ranks=ranks)
    reduces = _REDUCES_PER_LAYER * sizes.num_layers
    hops = _hops(link, ranks)
    moved = 2 * (ranks - 1) / ranks * sizes.hidden_size * _ACTIVATION_BYTES
    kind = f"{link}@{sizes.generation}"
    yield Term(
        price.LINK_LATENCY,
        reduces * hops,
        (f"link_latency.{link}", f"link_latency.{kind}", f"link_ranks.{link}.{ranks}"),
    )
    yield Term(
        price.LINK_TOKEN,
        reduces * moved / bandwidth,
        (f"link_token.{link}", f"link_token.{kind}"),
    )


def _exchanges(sizes: Communication, *, node: Node) -> Iterator[Term]:
    """Tokens of all ranks are gathered before the experts and scattered after them."""
    ranks = sizes.expert_data_parallel_size * sizes.tensor_parallel_size
    link, bandwidth = link_of(node, ranks=ranks)
    moved = 2 * (ranks - 1) / ranks * sizes.hidden_size * _ACTIVATION_BYTES
    hops = _hops(link, ranks)
    yield Term(
        price.LINK_LATENCY,
        2 * sizes.num_expert_layers * hops,
        (f"link_latency.{link}", f"link_latency.{link}@{sizes.generation}"),
    )
    yield Term(
        price.EXCHANGE_TOKEN,
        sizes.num_expert_layers * moved / bandwidth,
        ("exchange_token", f"link_token.{link}@{sizes.generation}"),
    )


def _hand_over(sizes: Communication, *, node: Node) -> Iterator[Term]:
    link, bandwidth = link_of(node, ranks=sizes.pipeline_parallel_size * sizes.tensor_parallel_size)
    yield Term(price.LINK_LATENCY, 2.0, (f"link_latency.{link}",))
    yield Term(
        price.LINK_TOKEN,
        2 * sizes.hidden_size * _ACTIVATION_BYTES / bandwidth,
        (f"link_token.{link}",),
    )
