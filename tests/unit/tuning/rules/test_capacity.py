"""What the memory plan makes the rules say."""

import pytest
from msgspec.structs import replace

from api_schemas.engine import EngineConfig
from api_schemas.explanation import Finding
from service.tuning.engine.defaults import effective_config
from service.tuning.engine.versions import parse_version
from service.tuning.hardware.spec import Node
from service.tuning.memory.budget import plan_memory
from service.tuning.models.spec import ModelSpec
from service.tuning.rules import capacity, headroom
from service.tuning.rules.base import RuleContext, run_rules
from tests.unit.tuning.memory.builders import (
    attention,
    gpu,
    group,
    hybrid_model,
    mixture_model,
    model,
    node,
)

RTX_4090 = node(
    gpu(
        name="RTX 4090",
        arch="Ada",
        gpu_class="consumer",
        memory_gib=23.53,
        compute_capability=(8, 9),
    )
)


def findings(
    spec: ModelSpec, on: Node, *, version: str = "0.33.0", **settings: object
) -> dict[str, Finding]:
    release, given = parse_version(version), EngineConfig(**settings)  # type: ignore[arg-type]
    effective = effective_config(given, spec=spec, node=on, version=release)
    context = RuleContext(
        version=release,
        given=given,
        effective=effective,
        spec=spec,
        node=on,
        plan=plan_memory(spec=spec, node=on, config=effective, version=release),
    )
    return {
        finding.rule: finding for finding in run_rules((*capacity.RULES, *headroom.RULES), context)
    }


def test_a_comfortable_configuration_has_no_findings() -> None:
    """Llama-3.1-8B at 8K on an H100 needs no remark."""
    assert findings(model(), node(), max_model_len=8192) == {}


def test_too_long_a_request_names_what_would_fit() -> None:
    """The error carries the largest length, and the suggestion repeats it as a value to set."""
    found = findings(model(), RTX_4090)["CAP003"]

    assert found.severity == "error"
    assert found.setting == "max_model_len"
    assert found.suggestion is not None
    longest = int(found.message.rsplit(" ", 1)[1].rstrip("."))
    assert f"max_model_len to {longest}" in found.suggestion
    assert "CAP003" not in findings(model(), RTX_4090, max_model_len=longest)


def test_no_memory_says_what_utilization_would_do() -> None:
    """If the card could hold more than was requested, the figure to exceed is named."""
    found = findings(model(), RTX_4090, gpu_memory_utilization=0.65)["CAP002"]

    assert found.severity == "error"
    assert found.suggestion is not None
    assert "gpu_memory_utilization above 0." in found.suggestion


def test_weights_too_large_ask_for_more_gpus() -> None:
    """70B in 16 bit does not load on one 80 GB card, but the node has more of them."""
    large = model(group(80, attention(heads=64), width=28_672), hidden_size=8192)

    found = findings(large, node(count=8))["CAP001"]

    assert found.severity == "error"
    assert found.suggestion is not None
    assert "8 GPUs" in found.suggestion


def test_a_verdict_near_the_edge_is_called_borderline() -> None:
    """A full-length "auto" pool holds just one request."""
    found = findings(model(), RTX_4090, max_model_len="auto")

    assert found["CAP004"].severity == "warning"
    assert "CAP003" not in found


def test_hybrids_are_told_how_many_sequences_they_can_hold() -> None:
    """The suggestion is a number that then passes."""
    found = findings(hybrid_model(), node(), version="0.28.0", max_model_len=32_768)["CAP005"]

    assert found.suggestion is not None
    number = int(found.suggestion.split()[3])
    again = findings(
        hybrid_model(), node(), version="0.28.0", max_model_len=32_768, max_num_seqs=number
    )
    assert "CAP005" not in again


def test_other_processes_are_told_from_too_high_a_request() -> None:
    """The suggested utilization leaves them their memory."""
    shared = replace(RTX_4090, used_memory_gib=3.0)

    found = findings(model(), shared, max_model_len=2048)["CAP006"]

    assert found.suggestion is not None
    lower = float(found.suggestion.rstrip(".").rsplit(" ", 1)[1])
    again = findings(model(), shared, max_model_len=2048, gpu_memory_utilization=lower)
    assert "CAP006" not in again


@pytest.mark.parametrize(("utilization", "warned"), [(0.95, True), (0.85, False)])
def test_large_logits_beside_a_full_card_warn_of_the_warm_up(
    utilization: float, warned: object
) -> None:
    """1,024 rows of 201,088 logits at 0.95 ran out of memory on an H100 in 0.19."""
    gpt_like = mixture_model(vocab_size=201_088)

    found = findings(
        gpt_like, node(), version="0.19.0", gpu_memory_utilization=utilization, max_model_len=8192
    )

    assert ("CAP007" in found) is warned


def test_graphs_outside_the_budget_warn_at_high_utilization() -> None:
    """Up to 0.19 graphs come on top of the budget; later releases charge them."""
    high = {"gpu_memory_utilization": 0.96, "max_model_len": 8192}

    assert "CAP008" in findings(model(), node(), version="0.19.0", **high)
    assert "CAP008" not in findings(model(), node(), version="0.33.0", **high)
    assert "CAP008" not in findings(model(), node(), version="0.19.0", enforce_eager=True, **high)


def test_consumer_blackwell_is_warned_of_graph_capture() -> None:
    """Capture has failed there at any utilization; eager mode has nothing to capture."""
    blackwell = node(
        gpu(
            name="RTX 5090",
            arch="Blackwell",
            gpu_class="consumer",
            memory_gib=31.37,
            compute_capability=(12, 0),
        )
    )

    assert "CAP009" in findings(model(), blackwell, max_model_len=8192)
    assert "CAP009" not in findings(model(), blackwell, max_model_len=8192, enforce_eager=True)


def test_long_prompts_of_hybrids_want_room() -> None:
    """A recurrent model with a full card is told to try one long prompt first."""
    tight = {"gpu_memory_utilization": 0.99, "max_num_seqs": 8, "max_model_len": 65_536}

    assert "CAP010" in findings(hybrid_model(), node(), **tight)
    assert "CAP010" not in findings(model(), node(), **tight)


def test_mixtures_are_told_of_the_graph_estimate() -> None:
    """Where vLLM subtracts it; not for dense models, eager mode or releases before 0.20."""
    short = {"max_model_len": 8192}

    assert findings(mixture_model(), node(), **short)["CAP013"].severity == "note"
    assert "CAP013" not in findings(model(), node(), **short)
    assert "CAP013" not in findings(mixture_model(), node(), enforce_eager=True, **short)
    assert "CAP013" not in findings(mixture_model(), node(), version="0.19.0", **short)


def test_an_unsure_layout_is_noted() -> None:
    """A guess about the checkpoint's layout is said to be one."""
    unsure = model(layout_confidence="low")

    assert findings(unsure, node(), max_model_len=8192)["CAP011"].severity == "note"


def test_rule_ids_are_unique_and_in_order() -> None:
    """Ids are stable names: CAP001 upwards."""
    for rules in (capacity.RULES, headroom.RULES):
        ids = [rule.id for rule in rules]
        assert ids == sorted(set(ids))


def test_more_gpus_are_whole_ones_over_which_the_model_divides() -> None:
    """56 heads with 8 groups go over 1, 2, 4 or 8 GPUs; two hold too little, three never do."""
    large = model(group(140, attention(heads=56), width=28_672), hidden_size=7168)

    found = findings(large, node())["CAP001"]

    assert found.suggestion is not None
    assert "at least 4 such GPUs with tensor_parallel_size 4" in found.suggestion
