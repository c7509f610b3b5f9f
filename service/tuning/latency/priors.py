"""What is expected of each coefficient before fitting: value and width.

A factor multiplies a time. Values come from isolated kernel tables and the first fits described in
the project's notes: dense weights are read at 0.76 to 0.88 of the data sheet's bandwidth (nvfp4
0.56 to 0.70), matrix products reach 0.6 to 0.85 of the peak in 16 bit and 0.4 to 0.8 in fewer;
widths are relative (standard deviation of the logarithm).
"""

import msgspec


class Prior(msgspec.Struct, frozen=True):
    """Expected value and relative width of a factor."""

    value: float
    width: float


_NEUTRAL = Prior(1.0, 0.10)
_PRIORS = {
    # reading weights, as the inverse of its efficiency
    "read": Prior(1.30, 0.10),
    "read.nvfp4": Prior(1.2, 0.15),
    "expert_read": Prior(1.35, 0.15),
    # arithmetic, as the inverse of its efficiency
    "compute": Prior(1.45, 0.15),
    # consumer parts are rated at half speed (32-bit sums), and kernels come closer to that
    "compute.half_rate": Prior(0.8, 0.35),
    "compute.fp8": Prior(1.15, 0.15),
    "compute.fp8_block": Prior(1.3, 0.15),
    "compute.nvfp4": Prior(1.6, 0.2),
    "compute.int4": Prior(1.4, 0.2),
    "compute.mxfp4": Prior(1.6, 0.2),
    "expert_compute": Prior(3.0, 0.3),
    # attention
    "context": Prior(1.35, 0.15),
    "context.mla": Prior(1.3, 0.25),
    "context.sparse": Prior(2.0, 0.4),
    "context.per_head": Prior(1.3, 0.4),
    "context.per_head@cdna2": Prior(1.0, 0.3),
    "context.per_head@cdna3": Prior(1.0, 0.3),
    "pair": Prior(2.2, 0.2),
    "pair.sinks": Prior(4.0, 0.5),
    "context.sinks": Prior(1.3, 0.3),
    "state": Prior(1.5, 0.3),
    "scan": Prior(4.0, 1.5),
    "activation": Prior(1.0, 0.3),
    "expert_activation": Prior(1.0, 0.4),
    # links, in seconds and in 1 / efficiency
    "link_latency.nvlink": Prior(9e-6, 0.25),
    "link_latency.xgmi": Prior(15e-6, 0.4),
    "link_latency.pcie": Prior(12e-6, 0.3),
    "link_latency.host": Prior(15e-6, 0.3),
    "link_latency.network": Prior(60e-6, 0.5),
    "link_token.nvlink": Prior(2.0, 0.3),
    "link_token.xgmi": Prior(2.5, 0.4),
    "link_token.pcie": Prior(4.0, 0.3),
    "link_token.host": Prior(6.0, 0.3),
    "link_token.network": Prior(2.5, 0.5),
    "exchange_token": Prior(2.0, 0.4),
    # fixed costs, seconds
    "layer": Prior(18e-6, 0.2),
    "expert_layer": Prior(30e-6, 0.5),
    "step": Prior(0.6e-3, 0.3),
    "row": Prior(12e-6, 0.3),
    # scheduling the next step while one runs hides part of the host's work
    "host.async": Prior(0.7, 0.25),
    "launch": Prior(0.4e-3, 0.5),
    "launch.eager": Prior(2.5, 0.4),
    "launch.experts": Prior(0.5, 0.5),
    # batches in a pipeline are unequal, and a stage waits for the one before it
    "pipeline": Prior(1.25, 0.15),
    "front_end": Prior(27e-3, 0.4),
    "front_end_token": Prior(3.8e-6, 0.4),
    "burst": Prior(5e-3, 0.1),
    "start": Prior(0.1, 0.5),
    # eras of the engine: what each changed over the one before, so that new releases keep it
    "overhead.v0": Prior(2.0, 0.12),
    "row.v0": Prior(2.2, 0.3),
    "overhead.0.8": Prior(1.0, 0.05),
    "overhead.0.11": Prior(1.0, 0.05),
    "overhead.0.14": Prior(1.0, 0.05),
    "overhead.0.17": Prior(1.0, 0.05),
    "overhead.0.20": Prior(1.0, 0.05),
    "overhead.0.29": Prior(1.0, 0.05),
    # random effects, by what follows the prefix
    "read.": Prior(1.0, 0.084),
    "compute.": Prior(1.0, 0.105),
    "expert_read.": Prior(1.0, 0.14),
    "expert_compute.": Prior(1.0, 0.175),
    "expert_layer.": Prior(1.0, 0.28),
    "context.": Prior(1.0, 0.105),
    "pair.": Prior(1.0, 0.14),
    "layer.": Prior(1.0, 0.105),
    "link_latency.": Prior(1.0, 0.14),
    "front_end.": Prior(1.0, 0.21),
    # hosts differ by much more than GPUs, and come with a generation
    "burst.": Prior(1.0, 0.5),
    "overhead.": Prior(1.0, 0.105),
    "row.": Prior(1.0, 0.21),
    "launch.": Prior(1.0, 0.175),
}


def prior_of(name: str) -> Prior:
    """Return the prior of a factor; one by name, else that of its family, else neutral."""
    exact = _PRIORS.get(name)
    if exact is not None:
        return exact
    family = name.split(".", 1)[0].split("@", 1)[0]
    if family == name:
        return _NEUTRAL
    return _PRIORS.get(f"{family}.", _NEUTRAL)
