"""The performance database over HTTP: posted, stored once, listed, learned from, removed."""

from typing import Any

import msgspec
import pytest

from api_schemas.measurement import Measurement
from service.api.examples import bench_report_request, measurement_request, tuning_request
from tests.integration.conftest import Client

_MODEL = {"id": "meta-llama/Llama-3.1-8B-Instruct"}
_HARDWARE = {"gpu": "H100-SXM5-80GB"}
_ENGINE = {"version": "0.33.0", "config": {"max_model_len": 8192}}
_LOADS = ((1, 256, 256), (64, 1024, 256), (16, 4096, 256))


def _workload(concurrency: int, prompt: int, output: int) -> dict[str, Any]:
    arrivals = {"kind": "closed_loop", "max_concurrency": concurrency}
    return {"prompt_tokens": prompt, "output_tokens": output, "arrivals": arrivals}


def _ask(
    load: tuple[int, int, int] = (32, 2048, 256),
    engine: dict[str, Any] = _ENGINE,
) -> dict[str, Any]:
    return {
        "model": _MODEL,
        "hardware": _HARDWARE,
        "engine": engine,
        "workload": _workload(*load),
    }


def _estimate(api: Client) -> Any:  # noqa: ANN401  # a response
    return api.post("/estimates", json=_ask())


def _measure(
    api: Client,
    slower: tuple[float, ...],
    engine: dict[str, Any] = _ENGINE,
) -> list[Any]:
    """Post a load each, slower by these factors than what is predicted without measurements."""
    asked = [_ask(load, engine) for load, _ in zip(_LOADS, slower, strict=False)]
    predicted = [api.post("/estimates", json=body).json()["performance"] for body in asked]
    return [
        api.post("/measurements", json={**body, "observed": _observed(figures, factor)})
        for body, figures, factor in zip(asked, predicted, slower, strict=True)
    ]


def _observed(predicted: dict[str, Any], factor: float) -> dict[str, Any]:
    return {
        "ttft_ms": {"mean": predicted["ttft_ms"]["mean"] * factor},
        "tpot_ms": {"mean": predicted["tpot_ms"]["mean"] * factor},
        "output_tokens_per_s": predicted["output_tokens_per_s"] / factor,
    }


def test_a_measurement_is_stored_with_its_address(api: Client) -> None:
    """201 with Location; the address answers what was stored, and a list holds it."""
    made = api.post("/measurements", json=msgspec.to_builtins(measurement_request()))

    assert made.status_code == 201
    (item,) = made.json()["items"]
    assert made.headers["location"] == f"/measurements/{item['id']}"
    found = api.get(made.headers["location"])
    assert found.json() == item
    assert msgspec.json.decode(found.content, type=Measurement).source.tool == "stated"
    assert api.get("/measurements").json()["items"] == [item]


def test_the_same_content_is_stored_once(api: Client) -> None:
    """Posting a result again answers 200 with the first record."""
    first = api.post("/measurements", json=msgspec.to_builtins(bench_report_request()))
    again = api.post("/measurements", json=msgspec.to_builtins(bench_report_request()))

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["items"] == first.json()["items"]
    assert first.json()["items"][0]["source"]["tool"] == "vllm_bench"
    assert len(api.get("/measurements").json()["items"]) == 1


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("model=meta-llama/Llama-3.1-8B-Instruct", True),
        ("model=other", False),
        ("gpu=NVIDIA H100 80GB HBM3", True),
        ("gpu=L4", False),
        ("engine_version=0.33.0", True),
        ("engine_version=0.32.0", False),
        ("tool=stated", True),
        ("tool=guidellm", False),
        ("cpu=false", True),
        ("cpu=true", False),
        ("gpu=h100&cpu=false&tool=stated", True),
    ],
)
def test_lists_can_be_filtered(api: Client, query: str, found: bool) -> None:  # noqa: FBT001
    """Model, GPU under any of its names, version, tool and backend narrow the list."""
    api.post("/measurements", json=msgspec.to_builtins(measurement_request()))

    assert bool(api.get(f"/measurements?{query}").json()["items"]) is found


def test_pages_follow_their_links(api: Client) -> None:
    """Every measurement is on one page, newest first."""
    bodies = [
        msgspec.to_builtins(measurement_request()) | {"reference": str(number)}
        for number in range(5)
    ]
    for number, body in enumerate(bodies):
        body["observed"]["completed"] = 160 + number
        api.post("/measurements", json=body)

    address, seen = "/measurements?limit=2", []
    while address:
        page = api.get(address)
        seen += [row["source"]["reference"] for row in page.json()["items"]]
        link = page.links.get("next")
        address = link["url"] if link else ""

    assert seen == ["4", "3", "2", "1", "0"]


def test_a_failed_run_is_refused_with_its_field(api: Client) -> None:
    """400 names the field of the report by a JSON pointer, and nothing is stored."""
    body = msgspec.to_builtins(bench_report_request())
    body["report"]["failed"] = 2

    refused = api.post("/measurements", json=body)

    assert refused.status_code == 400
    assert refused.json()["errors"][0]["pointer"] == "/report/failed"
    assert api.get("/measurements").json()["items"] == []


def test_unknown_hardware_is_refused_before_anything_is_stored(api: Client) -> None:
    """A GPU that nobody knows cannot be calibrated: 422, not a stored riddle."""
    body = msgspec.to_builtins(measurement_request()) | {"hardware": {"gpu": "no such thing"}}

    assert api.post("/measurements", json=body).json()["code"] == "unknown-gpu"
    assert api.get("/measurements").json()["items"] == []


def test_processor_measurements_are_kept_apart(api: Client) -> None:
    """Figures of vLLM's CPU backend are stored under the processor, and calibrate nothing."""
    body = msgspec.to_builtins(measurement_request())
    body |= {"cpu": True, "hardware": {"gpu": "AMD EPYC 9654"}}
    before = _estimate(api).content

    made = api.post("/measurements", json=body)

    assert made.status_code == 201
    assert made.json()["items"][0]["configuration"] is None
    assert made.json()["calibrations"] == []
    assert api.get("/calibrations").json()["items"] == []
    assert _estimate(api).content == before
    assert len(api.get("/measurements?cpu=true&gpu=AMD EPYC 9654").json()["items"]) == 1
    assert api.get("/measurements?cpu=false").json()["items"] == []


def test_the_next_answers_are_calibrated_and_name_the_measurements(api: Client) -> None:
    """Estimate and recommendation move towards what was measured, with a narrower band."""
    unlearned = _estimate(api).json()
    posted = _measure(api, (1.3, 1.3, 1.3))
    ids = [answer.json()["items"][0]["id"] for answer in posted]
    learned = _estimate(api).json()

    assert (unlearned["basis"], learned["basis"]) == ("modelled", "calibrated")
    assert "calibration" not in unlearned["provenance"]
    assert learned["provenance"]["calibration"]["measurement_ids"] == ids
    before, after = unlearned["performance"], learned["performance"]
    assert after["tpot_ms"]["mean"] / before["tpot_ms"]["mean"] == pytest.approx(1.3, rel=0.08)
    assert _width(after, "tpot_ms_mean") < _width(before, "tpot_ms_mean")
    (row,) = api.get("/calibrations?gpu=h100").json()["items"]
    assert (row["status"], row["measurement_ids"]) == ("used", ids)
    assert row["residuals"]["tpot"]["after_percent"] < row["residuals"]["tpot"]["before_percent"]


def _width(performance: dict[str, Any], name: str) -> float:
    low, high = performance["band"][name]
    return float(high / low)


def test_a_recommendation_rests_on_measurements_too(api: Client) -> None:
    """Advice for a measured configuration says so, and names them."""
    body = msgspec.to_builtins(tuning_request())
    chosen = api.post("/recommendations", json=body).json()["config"]
    _measure(api, (1.3, 1.3, 1.3), {"version": "0.33.0", "config": chosen})

    advice = api.post("/recommendations", json=body).json()

    assert advice["estimate"]["basis"] == "calibrated"
    assert len(advice["provenance"]["calibration"]["measurement_ids"]) == 3


def test_other_configurations_are_left_alone(api: Client) -> None:
    """Another release, split or number format answers the very bytes of before."""
    body = _ask()
    two = {
        "hardware": {**_HARDWARE, "gpus_per_node": 2},
        "engine": {"version": "0.33.0", "config": {"tensor_parallel_size": 2}},
    }
    others = [
        {**body, **two},
        {**body, "engine": {"version": "0.20.0"}},
        {**body, "engine": {"config": {"enforce_eager": True}}},
    ]
    before = [api.post("/estimates", json=other).content for other in others]

    _measure(api, (1.3, 1.3, 1.3))

    assert [api.post("/estimates", json=other).content for other in others] == before


def test_a_correction_that_makes_left_out_loads_worse_is_refused(api: Client) -> None:
    """Loads that contradict each other teach nothing: listed with the reason, and not used."""
    before = _estimate(api).content

    _measure(api, (1.5, 0.7, 1.0))

    (row,) = api.get("/calibrations").json()["items"]
    assert row["status"] == "refused"
    assert "than no calibration" in row["reason"]
    assert any(
        pair["after_percent"] >= pair["before_percent"] for pair in row["residuals"].values()
    )
    assert api.get("/calibrations?status=used").json()["items"] == []
    assert _estimate(api).content == before


def test_one_measured_load_is_too_few(api: Client) -> None:
    """Nothing is left out to judge by, so the answer stays as it was and the reason says so."""
    before = _estimate(api).content

    _measure(api, (1.3,))

    (row,) = api.get("/calibrations").json()["items"]
    assert (row["status"], row["factors"]) == ("refused", {})
    assert "One load" in row["reason"]
    assert _estimate(api).content == before


def test_a_removed_measurement_teaches_nothing_any_more(api: Client) -> None:
    """When all are gone, answers are the very bytes from before the first one."""
    before = _estimate(api).content
    posted = _measure(api, (1.3, 1.3, 1.3))
    assert _estimate(api).content != before

    for answer in posted:
        assert api.delete(answer.headers["location"]).status_code == 204

    assert _estimate(api).content == before
    assert api.get("/calibrations").json()["items"] == []
    assert api.delete(posted[0].headers["location"]).status_code == 404


def test_the_order_of_arrival_does_not_matter(api: Client, store_client: Any) -> None:  # noqa: ANN401  # a client
    """The same measurements give the same factors, whichever came first."""
    _measure(api, (1.3, 1.2, 1.25))
    items = api.get("/measurements").json()["items"]
    first = api.get("/calibrations").json()["items"][0]["factors"]
    store_client.flushdb()

    for item in items:  # newest first
        kept = ("model", "hardware", "engine", "workload", "observed")
        api.post("/measurements", json={name: item[name] for name in kept})
    second = api.get("/calibrations").json()["items"][0]["factors"]

    assert second == pytest.approx(first, rel=1e-6)
