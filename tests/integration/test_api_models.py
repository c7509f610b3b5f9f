"""The catalogue routes."""

import msgspec
import pytest

from service.api.examples import estimate_request, model_registration, tuning_request
from tests.integration.conftest import Client

_BUNDLED = "meta-llama/Llama-3.1-8B-Instruct"
_CONFIG = msgspec.to_builtins(model_registration())


@pytest.mark.parametrize("name", [_BUNDLED, _BUNDLED.lower(), _BUNDLED.replace("/", "%2F")])
def test_a_bundled_model_is_found_by_its_id(api: Client, name: str) -> None:
    """The slash may stay or be escaped, and case does not matter."""
    model = api.get(f"/models/{name}").json()

    assert (model["id"], model["origin"]) == (_BUNDLED, "bundled")
    assert model["config"]["num_hidden_layers"] == 32


def test_models_are_searched(api: Client) -> None:
    """Q narrows by id or alias, limit caps the rows."""
    rows = api.get("/models?q=8b+LLAMA+3.1&limit=2").json()["items"]

    assert len(rows) == 2
    assert all("llama-3.1-8b" in row["id"].lower() for row in rows)
    assert all(api.get(row["url"]).status_code == 200 for row in rows)


def test_a_registered_model_is_known_from_then_on(api: Client) -> None:
    """PUT answers 201, then 200; estimates, lists and GET know the model."""
    first = api.put("/models/team/mine", json=_CONFIG)
    second = api.put("/models/team/mine", json=_CONFIG)

    assert (first.status_code, second.status_code) == (201, 200)
    assert api.get(first.headers["location"]).json() == first.json()
    assert [row["id"] for row in api.get("/models?q=team/m").json()["items"]] == ["team/mine"]
    body = msgspec.to_builtins(estimate_request()) | {"model": {"id": "team/mine"}}
    assert api.post("/estimates", json=body).status_code == 200


def test_a_registration_wins_over_the_bundled_model(api: Client) -> None:
    """What a caller registered under a bundled id is what answers are made from."""
    api.put(f"/models/{_BUNDLED}", json=_CONFIG)

    assert api.get(f"/models/{_BUNDLED}").json()["origin"] == "registered"
    ids = [row["id"] for row in api.get("/models?limit=1000").json()["items"]]
    assert ids.count(_BUNDLED) == 1


def test_a_removed_registration_shows_the_bundled_model_again(api: Client) -> None:
    """DELETE undoes PUT: the next answers are of the bundled model, those stored before stay."""
    asked = msgspec.to_builtins(tuning_request()) | {"model": {"id": _BUNDLED}}
    api.put(f"/models/{_BUNDLED}", json=_CONFIG)
    before = api.post("/recommendations", json=asked)

    removed = api.delete(f"/models/{_BUNDLED}")

    assert (removed.status_code, removed.content) == (204, b"")
    assert api.get(f"/models/{_BUNDLED}").json()["origin"] == "bundled"
    assert api.get(before.headers["location"]).content == before.content
    after = api.post("/recommendations", json=asked).json()
    weights = [answer["estimate"]["memory"]["weights_gib"] for answer in (before.json(), after)]
    assert weights[0] < weights[1]


@pytest.mark.parametrize("name", [_BUNDLED, "team/mine", "TEAM/OTHER"])
def test_only_what_was_registered_can_be_removed(api: Client, name: str) -> None:
    """A bundled model, an unknown one and other letters than the registered ones are 404."""
    api.put("/models/team/other", json=_CONFIG)

    answer = api.delete(f"/models/{name}")

    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
    assert api.get("/models/team/other").json()["origin"] == "registered"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/models/-dash", _CONFIG, 400),
        ("/models/a%20b", _CONFIG, 400),
        ("/models/a/b", {"config": {}}, 400),
        ("/models/a/b", {}, 400),
        ("/models/a/b", {"config": {"architectures": ["Nothing"]}}, 422),
        ("/models/a/b", _CONFIG | {"weights_bytes": 0}, 400),
    ],
)
def test_what_cannot_be_used_is_not_registered(
    api: Client, path: str, body: dict[str, object], status: int
) -> None:
    """A bad id or a config that nothing can be estimated from is refused, and not stored."""
    assert api.put(path, json=body).status_code == status
    assert api.get("/models?q=a/b").json()["items"] == []


def test_a_gpu_is_found_by_any_name_with_its_sources(api: Client) -> None:
    """Catalogue name, driver name and cloud instance lead to the same entry."""
    names = ("H100-SXM5-80GB", "NVIDIA H100 80GB HBM3", "p5.48xlarge")
    entries = [api.get(f"/gpus/{name}").json() for name in names]

    assert entries[0] == entries[1] == entries[2]
    assert entries[0]["figures"]["memory_gib"]["source"]


def test_gpus_are_searched_by_words_of_any_name(api: Client) -> None:
    """Words in any order, of the catalogue's name, the driver's or a cloud's."""
    found = {
        query: {row["name"] for row in api.get("/gpus", params={"q": query}).json()["items"]}
        for query in ("h100 80gb", "p5.48xlarge", "no such part")
    }

    assert "H100-SXM5-80GB" in found["h100 80gb"]
    assert "L40S" not in found["h100 80gb"]
    assert found["p5.48xlarge"] == {"H100-SXM5-80GB"}
    assert found["no such part"] == set()


def test_every_listed_address_resolves(api: Client) -> None:
    """Rows of the catalogues carry addresses that answer."""
    addresses = [row["url"] for row in api.get("/gpus").json()["items"]]
    addresses += [row["settings_url"] for row in api.get("/engine-versions").json()["items"][-3:]]
    addresses += [f"/rules/{row['id']}" for row in api.get("/rules").json()["items"]]
    index = api.get("/", headers={"Accept": "application/json"}).json()
    addresses += [
        address for name, address in index["links"].items() if name not in {"estimates", "metrics"}
    ]

    assert [address for address in addresses if api.get(address).status_code != 200] == []


def test_settings_of_a_release_are_its_own(api: Client) -> None:
    """A release lists the settings that it knows, and no later ones."""
    old = {row["name"] for row in api.get("/engine-versions/0.8.0/settings").json()["items"]}
    new = {row["name"] for row in api.get("/engine-versions/0.33.0/settings").json()["items"]}

    assert "max_num_seqs" in old & new
    assert old - new
    assert new - old


def test_eleven_presets_are_listed_with_sources(api: Client) -> None:
    """Every preset has a workload, targets and where they come from."""
    presets = api.get("/presets").json()["items"]

    assert len(presets) == 11
    assert all(preset["source"] and preset["workload"] for preset in presets)
