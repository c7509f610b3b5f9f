"""What a configuration larger than the named hardware is told."""

import pytest

from tests.unit.tuning.rules.builders import LLAMA_70B, findings, situation


@pytest.mark.parametrize(
    ("gpus", "nodes", "ranks", "fields"),
    [
        (8, 1, 16, "set /hardware/nodes to 2 (it is 1)"),
        (8, 2, 32, "set /hardware/nodes to 4 (it is 2)"),
        (1, 1, 2, "set /hardware/gpus_per_node to 2 (it is 1), or /hardware/nodes to 2 (it is 1)"),
    ],
)
def test_too_few_gpus_name_the_field_that_may_be_missing(
    gpus: int, nodes: int, ranks: int, fields: str
) -> None:
    """Sixteen ranks on one node of eight are refused with the nodes to state (vllm issue 16692)."""
    context = situation(
        model=LLAMA_70B,
        gpus=gpus,
        hardware={"nodes": nodes},
        planned=False,
        tensor_parallel_size=ranks,
    )

    (found,) = findings(context, "PAR006")

    assert found.severity == "error"
    assert found.suggestion is not None
    assert fields in found.suggestion
