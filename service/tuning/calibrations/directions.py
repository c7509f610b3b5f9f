"""The directions in which a few points may move the physics of one configuration.

Each is a group of components of the price with one common factor, and the spread that such a factor
has between configurations that no fit has seen (standard deviation of the logarithm). They are
about twice the random effects in `service.tuning.latency.priors`: of the choices that
`benchmarks/few_shot.py --folds 5` compared, that predicts left-out loads best.
"""

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.tuning.latency import price
from service.tuning.latency.work import StepWork

Floats = NDArray[np.float64]


class Direction(msgspec.Struct, frozen=True, kw_only=True):
    """Components that move together, under the names that the coefficients have for them."""

    name: str
    components: tuple[int, ...]
    factors: tuple[str, ...]
    """Names of coefficients; each is in every term of the components, and in no other term. One
    that ends in a dot stands for the names with one more word, without a generation."""
    spread: float


ENGINE = (
    Direction(
        name="memory",
        components=(price.ATTENTION_READ, price.MLP_READ, price.HEAD_READ),
        factors=("read",),
        spread=0.26,
    ),
    Direction(
        name="compute",
        components=(price.ATTENTION_TOKEN, price.MLP_TOKEN, price.HEAD_ROW),
        factors=("compute",),
        spread=0.42,
    ),
    Direction(
        name="expert_memory", components=(price.EXPERT_READ,), factors=("expert_read",), spread=0.50
    ),
    Direction(
        name="expert_compute",
        components=(price.EXPERT_TOKEN, price.EXPERT_ACTIVATION),
        factors=("expert_compute", "expert_activation"),
        spread=0.68,
    ),
    Direction(
        name="kv_cache",
        components=(price.CONTEXT, price.WINDOW_CONTEXT, price.STATE),
        factors=("context", "state"),
        spread=0.42,
    ),
    Direction(
        name="prefill_attention",
        components=(price.PAIR, price.WINDOW_PAIR, price.SCAN),
        factors=("pair", "scan"),
        spread=0.50,
    ),
    Direction(
        name="collectives",
        components=(price.LINK_LATENCY, price.LINK_TOKEN, price.EXCHANGE_TOKEN),
        factors=("link_latency.", "link_token.", "exchange_token"),
        spread=0.50,
    ),
    Direction(
        name="fixed",
        components=(price.LAYER, price.EXPERT_LAYER, price.STEP),
        factors=("layer", "expert_layer", "step"),
        spread=0.42,
    ),
    Direction(name="sequences", components=(price.ROW,), factors=("row",), spread=0.50),
    Direction(name="launches", components=(price.LAUNCH,), factors=("launch",), spread=0.68),
)
FRONT_END = ("front_end", "front_end_token", "burst", "start")
FRONT_END_SPREAD = 0.60
"""Of the API server's time: tokeniser, host and client differ more than engines do."""
WHOLE_SPREAD = 0.20
"""Of one factor on all of the engine's time: clocks, drivers, the host."""
NUM_DIRECTIONS = len(ENGINE) + 2
FRONT_END_AT, WHOLE_AT = len(ENGINE), len(ENGINE) + 1
SPREADS: Floats = np.array([*(d.spread for d in ENGINE), FRONT_END_SPREAD, WHOLE_SPREAD])
_FIXED = 1e-4
"""Spread of a direction that a hypothesis holds still."""


class Hypothesis(msgspec.Struct, frozen=True, kw_only=True):
    """Which directions a fit may move."""

    name: str
    moves_engine: bool
    moves_front_end: bool
    moves_whole: bool

    @property
    def spreads(self) -> Floats:
        """Return the spread of every direction under this hypothesis."""
        moving = [self.moves_engine] * len(ENGINE) + [self.moves_front_end, self.moves_whole]
        spreads: Floats = np.where(moving, SPREADS, _FIXED)
        return spreads


HYPOTHESES = (
    Hypothesis(name="all", moves_engine=True, moves_front_end=True, moves_whole=True),
    Hypothesis(name="engine", moves_engine=True, moves_front_end=False, moves_whole=True),
    Hypothesis(name="speed", moves_engine=False, moves_front_end=True, moves_whole=True),
    Hypothesis(name="front_end", moves_engine=False, moves_front_end=True, moves_whole=False),
)
"""What may explain that measurements differ; left-out points say how much each of them counts."""


def _membership() -> Floats:
    member = np.zeros((price.NUM_PRICES, NUM_DIRECTIONS))
    for column, direction in enumerate(ENGINE):
        member[list(direction.components), column] = 1.0
    member[:, WHOLE_AT] = 1.0
    return member


MEMBERSHIP: Floats = _membership()
"""One row per component: which directions scale it."""


def factors_of(moves: Floats, work: StepWork) -> dict[str, float]:
    """Return the factor on each coefficient of this work, from the logarithms of the directions."""
    names = {name for term in work.terms for name in term.factors}
    whole = float(moves[WHOLE_AT])
    factors = dict.fromkeys(FRONT_END, math.exp(float(moves[FRONT_END_AT])))
    for direction, move in zip(ENGINE, moves, strict=False):
        factor = math.exp(float(move) + whole)
        factors |= dict.fromkeys(_present(direction.factors, names), factor)
    factors |= dict.fromkeys({"activation"} & names, math.exp(whole))
    return factors


def _present(wanted: tuple[str, ...], names: set[str]) -> set[str]:
    exact = {name for name in wanted if name in names}
    stems = tuple(name for name in wanted if name.endswith("."))
    if not stems:
        return exact
    return exact | {name for name in names if name.startswith(stems) and "@" not in name}
