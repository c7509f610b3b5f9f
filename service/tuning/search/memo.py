"""What one request has computed already, so that it computes everything once."""

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Performance
from api_schemas.slo import TargetOutcome
from service.tuning.hardware.spec import Node
from service.tuning.memory.plan import MemoryPlan
from service.tuning.models.spec import ModelSpec
from service.tuning.performance import Prediction

T = TypeVar("T")
encoded = msgspec.msgpack.Encoder().encode
"""The content of a value, to look it up by."""


class Memo(Generic[T]):
    """Results by what they depend on: a model, a node, and content.

    Model and node are told apart by identity and kept, so that no other can take their place.
    """

    def __init__(self) -> None:
        self._results: dict[tuple[int, int, bytes], tuple[T, ModelSpec, Node]] = {}

    def once(self, spec: ModelSpec, node: Node, content: bytes, compute: Callable[[], T]) -> T:
        """Return the known result, or compute it."""
        key = (id(spec), id(node), content)
        known = self._results.get(key)
        if known is None:
            known = compute(), spec, node
            self._results[key] = known
        return known[0]


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """All that one request remembers; it lives and dies with its problem, in one thread."""

    plans: Memo[tuple[EngineConfig, MemoryPlan]] = msgspec.field(default_factory=Memo)
    predictions: Memo[Prediction] = msgspec.field(default_factory=Memo)
    runs: Memo[tuple[Performance, tuple[TargetOutcome, ...]]] = msgspec.field(default_factory=Memo)
