"""The model for proofs without a GPU."""

import json
from pathlib import Path

import msgspec

from api_schemas.model import ModelRef
from service.tuning.models.catalogue import resolve_model
from workers.tiny_model import CONFIG, write_tiny_model

EXAMPLE = Path(__file__).parents[3] / "examples" / "requests" / "tiny-on-cpu.json"


def test_it_is_written_as_its_config_says(tmp_path: Path) -> None:
    """Weights, vocabulary and config fit together, byte by byte."""
    folder = write_tiny_model(tmp_path / "tiny")

    config = json.loads((folder / "config.json").read_text())
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    content = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    end = max(entry["data_offsets"][1] for name, entry in header.items() if name[0] != "_")
    assert config == CONFIG
    assert sorted(vocabulary.values()) == list(range(config["vocab_size"]))
    assert len(content) == 8 + size + end
    assert header["model.embed_tokens.weight"]["shape"] == [2048, 128]


def test_it_is_the_same_every_time(tmp_path: Path) -> None:
    """Two runs write the same bytes."""
    one, two = write_tiny_model(tmp_path / "a"), write_tiny_model(tmp_path / "b")

    for file in one.iterdir():
        assert file.read_bytes() == (two / file.name).read_bytes()


def test_setpoint_knows_what_it_is() -> None:
    """The config is one that predictions can be made from."""
    spec = resolve_model(ModelRef(id="tiny", config=CONFIG))

    assert spec.num_layers == CONFIG["num_hidden_layers"]


def test_the_example_request_is_for_it() -> None:
    """What the README proves on a CPU is the model that this module writes."""
    request = msgspec.json.decode(EXAMPLE.read_bytes())

    assert request["model"]["config"] == CONFIG
