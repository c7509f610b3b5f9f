"""Settings of a worker process, read once from the environment."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from service.embedded import store_url
from service.settings import read_settings


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told; the variables are named in the descriptions."""

    redis_url: str
    node: Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.\-]+$")]
    vllm_envs: tuple[Path, ...]
    work_dir: Path


def read_worker_settings(environment: Mapping[str, str] | None = None) -> WorkerSettings:
    """Return the worker's settings.

    `SETPOINT_REDIS_URL` is the store, else the embedded one of `SETPOINT_DATA_DIR`;
    `SETPOINT_WORKER_NODE` the node's name, else the host's; `SETPOINT_VLLM_ENVS` the folders of
    vLLM environments, separated like `PATH`.
    """
    variables = os.environ if environment is None else environment  # noqa: TID251
    own = ("SETPOINT_VLLM_ENVS",)
    shared = read_settings({name: value for name, value in variables.items() if name not in own})
    return msgspec.convert(
        {
            "redis_url": shared.redis_url or store_url(shared.data_dir),
            "node": variables.get("SETPOINT_WORKER_NODE") or platform.node() or "localhost",
            "vllm_envs": [
                Path(item)
                for item in variables.get("SETPOINT_VLLM_ENVS", "").split(os.pathsep)
                if item
            ],
            "work_dir": Path(shared.data_dir) / "work",
        },
        WorkerSettings,
    )
