"""What files are rendered from: one configuration with all that its files must say."""

import math
import re
from functools import cached_property

import msgspec
from msgspec.structs import replace

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Estimate
from api_schemas.explanation import Decision, Finding
from api_schemas.slo import Slo
from service.tuning.engine.argv import to_argv
from service.tuning.engine.versions import EngineVersion
from service.tuning.errors import InvalidRequest
from service.tuning.hardware.spec import Node

DEFAULT_PORT = 8000
_SECRET = re.compile(r"(TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY|CREDENTIALS)")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 40


class Rendering(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One recommended configuration, and what is known of it.

    Only `model_id`, `config`, `version` and `node` are needed; the rest makes the files say more.
    """

    model_id: str
    config: EngineConfig
    """The settings to state; what is absent stays vLLM's default."""
    version: EngineVersion
    node: Node
    env: dict[str, str] = {}
    replicas: int = 1
    served_model_name: str | None = None
    slo: Slo | None = None
    effective: EngineConfig | None = None
    """`config` with all defaults, for files whose format must state a default."""
    headline: str = ""
    decisions: tuple[Decision, ...] = ()
    findings: tuple[Finding, ...] = ()
    assumptions: tuple[str, ...] = ()
    estimate: Estimate | None = None

    def __post_init__(self) -> None:
        """Refuse what no file could hold.

        Raises:
            InvalidRequest: an environment value with a line break or a NUL character.
        """
        for name, value in self.env.items():
            if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) or re.search(r"[\0\r\n]", value):
                raise InvalidRequest(
                    f"environment variable {name[:64]} must be one line of text",
                    pointer=f"/engine/env/{name[:64]}",
                )

    @property
    def settings(self) -> EngineConfig:
        """The configuration with the served name in it."""
        if self.served_model_name is None or self.config.served_model_name is not None:
            return self.config
        return replace(self.config, served_model_name=[self.served_model_name])

    @cached_property
    def argv(self) -> list[str]:
        """The command: `vllm serve MODEL --flag value ...`."""
        return to_argv(self.model_id, self.settings, self.version)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self.config.port if isinstance(self.config.port, int) else DEFAULT_PORT

    @property
    def metrics_model_name(self) -> str:
        """The name that metrics carry in their label `model_name`."""
        served = self.settings.served_model_name
        first = served[0] if isinstance(served, list) and served else served
        return str(first) if first else self.model_id

    @property
    def gpus_per_replica(self) -> int:
        """GPUs that one server occupies."""
        sizes = (
            self.config.tensor_parallel_size,
            self.config.pipeline_parallel_size,
            self.config.data_parallel_size,
            self.config.prefill_context_parallel_size,
        )
        return math.prod(size for size in sizes if size is not None and size > 0)

    @property
    def nodes_per_replica(self) -> int:
        """Nodes that one server spans."""
        return math.ceil(self.gpus_per_replica / self.node.gpus_per_node)

    @property
    def name(self) -> str:
        """A name that Kubernetes, compose and Helm accept, such as vllm-llama-3-1-8b-instruct."""
        last = self.model_id.rstrip("/").rsplit("/", 1)[-1].lower()
        return f"vllm-{_NOT_IN_NAMES.sub('-', last).strip('-')[:_LONGEST_NAME].strip('-')}".strip(
            "-"
        )

    @property
    def plain_env(self) -> dict[str, str]:
        """Environment variables that may stand in a file."""
        return {name: value for name, value in sorted(self.env.items()) if not is_secret(name)}

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Environment variables whose values must never stand in a file."""
        given = {name for name in self.env if is_secret(name)}
        return tuple(sorted(given | {"HF_TOKEN"}))


def is_secret(name: str) -> bool:
    """Whether an environment variable's name says that its value is a secret."""
    return _SECRET.search(name) is not None
