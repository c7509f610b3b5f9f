"""KV plans that real vLLM servers printed, each with its public source."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api_schemas.estimate import EstimateRequest
from service.tuning.errors import UnsupportedArchitecture
from service.tuning.estimate import estimate

_FILE = Path(__file__).parent / "data" / "kv_plans.jsonl"
CASES = [json.loads(line) for line in _FILE.read_text(encoding="utf-8").splitlines()]
_UNKNOWN_LAYOUTS = frozenset({"DeepseekV4ForCausalLM"})


def architecture(case: dict[str, Any]) -> str:
    return str(case["request"]["model"]["config"]["architectures"][0])


KNOWN = [case for case in CASES if architecture(case) not in _UNKNOWN_LAYOUTS]
UNKNOWN = [case for case in CASES if architecture(case) in _UNKNOWN_LAYOUTS]


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case["id"])
def test_the_printed_plan_comes_out_within_0_3_percent(case: dict[str, Any]) -> None:
    """Given the logged pool, tokens, concurrency and longest length are those of the log.

    The pools are logged to 0.01 GiB, which is what the tolerance is for.
    """
    answer = estimate(msgspec.convert(case["request"], EstimateRequest))

    assert answer.memory is not None
    for metric in ("kv_cache_tokens", "max_concurrency", "largest_max_model_len"):
        if metric in case["expect"]:
            tolerance = max(0.003 * case["expect"][metric], 0.005)
            assert getattr(answer.memory, metric) == pytest.approx(
                case["expect"][metric], abs=tolerance
            )
    if "fits" in case["expect"]:
        assert answer.fits is case["expect"]["fits"]


@pytest.mark.parametrize("case", UNKNOWN, ids=lambda case: case["id"])
def test_an_unknown_layout_gets_no_number(case: dict[str, Any]) -> None:
    """What is not modelled is refused by name instead of guessed."""
    with pytest.raises(UnsupportedArchitecture):
        estimate(msgspec.convert(case["request"], EstimateRequest))
