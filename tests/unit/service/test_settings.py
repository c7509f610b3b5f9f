"""Settings: what the environment may say."""

import pytest

from service.settings import (
    CLIENT_VARIABLES,
    WORKER_VARIABLES,
    InvalidSettings,
    Settings,
    child_environment,
    describe_settings,
    read_settings,
    variable_of,
)


def test_an_empty_environment_gives_the_defaults() -> None:
    """Without variables the service listens on loopback only, with an embedded store."""
    settings = read_settings({})

    assert (settings.host, settings.port, settings.redis_url) == ("127.0.0.1", 8000, None)


def test_variables_are_converted_and_foreign_ones_left_alone() -> None:
    """Numbers and booleans are read from text; variables of others and of workers are ignored."""
    environment = {
        "SETPOINT_PORT": "9000",
        "SETPOINT_HUB_LOOKUP": "true",
        "SETPOINT_STORE_TIMEOUT_S": "0.5",
        "SETPOINT_WORKER_NODE": "gpu-1",
        "PATH": "/bin",
    }

    settings = read_settings(environment)

    assert (settings.port, settings.hub_lookup, settings.store_timeout_s) == (9000, True, 0.5)


def test_what_is_given_wins_over_the_environment() -> None:
    """A command-line value beats the variable; None means not given."""
    settings = read_settings({"SETPOINT_PORT": "9000"}, port=9001, host=None)

    assert (settings.port, settings.host) == (9001, "127.0.0.1")


def test_an_unknown_variable_is_refused_with_the_allowed_names() -> None:
    """A misspelt variable stops the start and names every variable there is."""
    with pytest.raises(InvalidSettings) as caught:
        read_settings({"SETPOINT_PRT": "1"})

    assert "SETPOINT_PRT" in str(caught.value)
    assert all(variable_of(name) in str(caught.value) for name in Settings.__struct_fields__)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SETPOINT_PORT", "70000"),
        ("SETPOINT_PORT", "http"),
        ("SETPOINT_LOG_LEVEL", "hunter2"),
        ("SETPOINT_REDIS_URL", "http://user:hunter2@somewhere"),
        ("SETPOINT_MAX_BODY_BYTES", "-1"),
    ],
)
def test_a_refused_value_is_named_but_never_shown(variable: str, value: str) -> None:
    """The message names the variable and what is allowed, not the value: it may be a secret."""
    with pytest.raises(InvalidSettings) as caught:
        read_settings({variable: value})

    assert variable in str(caught.value)
    assert value not in str(caught.value)


def test_every_setting_is_described() -> None:
    """Each setting has a variable and a sentence for the documentation."""
    described = describe_settings()

    assert len(described) == (
        len(Settings.__struct_fields__) + len(WORKER_VARIABLES) + len(CLIENT_VARIABLES)
    )
    assert all(name.startswith("SETPOINT_") and text for name, _, text in described)


def test_a_child_process_gets_the_settings_it_is_given() -> None:
    """The environment of a child holds ours and the variables of the given settings."""
    assert child_environment(redis_url="unix:///x")["SETPOINT_REDIS_URL"] == "unix:///x"
