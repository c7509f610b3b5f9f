"""The command of a recommended configuration under an installed release."""

import pytest

from api_schemas.engine import EngineConfig
from service.tuning.engine.versions import parse_version
from workers.launch import adapt_to_cpu, launch_of, serve_command

_NEW = parse_version("0.32.0")


def test_a_configuration_becomes_flags() -> None:
    """Every setting is rendered for the release that runs."""
    launch = launch_of(EngineConfig(max_num_seqs=8, enable_prefix_caching=False), version=_NEW)

    assert launch.flags == ["--max-num-seqs", "8", "--no-enable-prefix-caching"]
    assert launch.notes == []


def test_what_a_release_lacks_is_left_out_and_said() -> None:
    """An older vLLM starts without the newer setting, and the result says so."""
    config = EngineConfig(max_num_seqs=8, async_scheduling=True)

    launch = launch_of(config, version=parse_version("0.9.0"))

    assert launch.flags == ["--max-num-seqs", "8"]
    assert launch.config == EngineConfig(max_num_seqs=8)
    assert len(launch.notes) == 1
    assert "async_scheduling" in launch.notes[0]


@pytest.mark.parametrize("name", ["host", "port", "served_model_name", "uds"])
def test_where_to_listen_is_not_the_recommendations_business(name: str) -> None:
    """A measurement listens where it chooses, whatever the configuration says."""
    config = EngineConfig(**{name: 1 if name == "port" else ["x"] if "model" in name else "x"})

    launch = launch_of(config, version=_NEW)

    assert launch.flags == []


def test_what_loads_code_needs_the_operators_word() -> None:
    """Nobody runs programs on a worker by asking for advice."""
    config = EngineConfig(trust_remote_code=True, middleware=["os.system"], max_num_seqs=8)

    refused = launch_of(config, version=_NEW)
    allowed = launch_of(config, version=_NEW, allow_code=True)

    assert refused.flags == ["--max-num-seqs", "8"]
    assert len(refused.notes) == 2
    assert "--trust-remote-code" in allowed.flags


def test_a_cpu_gets_its_pool_in_bytes() -> None:
    """The CPU backend would take nearly all memory, wants eager mode and blocks of 32s."""
    config = EngineConfig(gpu_memory_utilization=0.9, block_size=16, enforce_eager=False)

    adapted, notes = adapt_to_cpu(config, kv_cache_bytes=2**20)

    assert adapted == EngineConfig(kv_cache_memory_bytes=2**20, block_size=32, enforce_eager=True)
    assert len(notes) == 3


def test_the_command_is_an_argument_list() -> None:
    """Nothing passes through a shell, and requests find the model under its own name."""
    launch = launch_of(EngineConfig(max_num_seqs=8), version=_NEW)

    command = serve_command(
        launch, executable="/env/bin/vllm", model="/models/a b", served_name="org/name", port=7
    )

    assert command == [
        *("/env/bin/vllm", "serve", "/models/a b", "--max-num-seqs", "8"),
        *("--host", "127.0.0.1", "--port", "7", "--served-model-name", "org/name"),
    ]
