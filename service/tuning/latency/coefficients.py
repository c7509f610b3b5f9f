"""The fitted coefficients: physical factors with their priors, read from package data."""

import json
import math
from functools import cache
from importlib import resources

import msgspec

from service.tuning.latency import priors


class Coefficients(msgspec.Struct, frozen=True, kw_only=True):
    """Factors by name; an unknown random effect is one, an unknown constant its prior."""

    version: str
    factors: dict[str, float]

    def value(self, name: str) -> float:
        """Return the factor: fitted, else its prior."""
        fitted = self.factors.get(name)
        return fitted if fitted is not None else priors.prior_of(name).value

    def product(self, names: tuple[str, ...]) -> float:
        """Return the product of the factors."""
        return math.prod(self.value(name) for name in names)

    def is_fitted(self, name: str) -> bool:
        """Return whether measurements moved this factor (rather than its prior alone)."""
        return name in self.factors


@cache
def bundled_coefficients() -> Coefficients:
    """Return the coefficients that ship with this release."""
    text = (
        resources.files("service.tuning.latency")
        .joinpath("data/coefficients.json")
        .read_text("utf-8")
    )
    data = json.loads(text)
    factors = {name: float(entry["value"]) for name, entry in data["factors"].items()}
    return Coefficients(version=str(data["version"]), factors=factors)


PRIOR_COEFFICIENTS = Coefficients(version="priors", factors={})
"""What the physics and public kernel tables say before any serving measurement."""
