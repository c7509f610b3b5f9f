"""What a validation measures: the recommendation, on this node, with an installed release."""

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from api_schemas.engine import Engine, EngineConfig
from api_schemas.estimate import Estimate, EstimateRequest
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.recommendation import Recommendation
from api_schemas.slo import Slo
from api_schemas.validation import Environment, ValidationPlan
from api_schemas.worker import VllmEnvironment, WorkerDevice, WorkerNode
from api_schemas.workload import Arrivals, SampleLengths, Workload
from service.queue import device_count, gpu_name, is_cpu
from service.tuning.engine.versions import EngineVersion, parse_version
from service.tuning.errors import TuningError
from service.tuning.estimate import estimate
from service.tuning.models.spec import ModelSpec
from service.tuning.played_run import PlayedRun, run_of
from workers.devices import pick
from workers.launch import Launch, adapt_to_cpu, launch_of
from workers.traffic import Load

ResolveModel = Callable[[ModelRef], ModelSpec]
_GIB = 1024**3
_FREE_SHARE = 0.5
"""Share of the CPU's free memory that a measurement's KV cache may take."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is fixed before the first start."""

    recommendation: Recommendation
    environment: VllmEnvironment
    version: EngineVersion
    devices: list[WorkerDevice]
    model: ModelRef
    model_path: str
    hardware: Hardware
    as_asked: bool
    notes: list[str]
    resolve_model: ResolveModel
    allow_code: bool = False

    @property
    def on_cpu(self) -> bool:
        """Whether it runs on the node's CPU."""
        return is_cpu(self.devices[0])

    @property
    def workload(self) -> Workload:
        """The load as the recommendation understood it."""
        return self.recommendation.request.workload

    @property
    def slo(self) -> Slo:
        """The targets as the recommendation understood them."""
        return self.recommendation.request.slo

    @property
    def replicas(self) -> int:
        """Copies among which the load is shared; one of them is measured."""
        return max(self.recommendation.replicas.count, 1)

    def devices_of(self, config: EngineConfig) -> list[WorkerDevice]:
        """Return the devices that a configuration runs on: of those leased the best connected."""
        if self.on_cpu:
            return self.devices
        return pick(self.devices, count=device_count(config)) or self.devices

    def launch(self, config: EngineConfig, *, predicted: Estimate) -> Launch:
        """Return the flags of a configuration here; a CPU gets the pool that was predicted."""
        notes: list[str] = []
        if self.on_cpu:
            config, notes = adapt_to_cpu(config, kv_cache_bytes=self._pool_bytes(config, predicted))
        launch = launch_of(config, version=self.version, allow_code=self.allow_code)
        return msgspec.structs.replace(launch, notes=[*notes, *launch.notes])

    def predict(self, config: EngineConfig, *, arrivals: Arrivals | None = None) -> Estimate | None:
        """Return what Setpoint expects of one replica in the long run; None where it cannot say."""
        workload = None
        if arrivals is not None:
            workload = msgspec.structs.replace(self.workload, arrivals=arrivals)
        return self._estimate(config, workload)

    def predict_run(
        self, config: EngineConfig, played: PlayedRun, *, load: Load
    ) -> Estimate | None:
        """Return what Setpoint expects of one replica in this very run; None where it cannot say.

        Its beginning, its end and its own requests are part of it.
        """
        workload = msgspec.structs.replace(
            self.workload,
            arrivals=run_of(load.arrivals, num_requests=load.num_requests),
            shared_prefix_tokens=load.shared_prefix_tokens,
        )
        if load.prompt_tokens is None or load.output_tokens is None:
            workload = msgspec.structs.replace(
                workload,
                prompt_tokens=SampleLengths(tokens=list(played.prompt_tokens)),
                output_tokens=SampleLengths(tokens=list(played.output_tokens)),
            )
        return self._estimate(config, workload, played)

    def _estimate(
        self, config: EngineConfig, workload: Workload | None, played: PlayedRun | None = None
    ) -> Estimate | None:
        request = EstimateRequest(
            model=self.model,
            hardware=self.hardware,
            engine=Engine(version=self.version.text, config=config),
            workload=workload,
        )
        try:
            return estimate(request, resolve_model=self.resolve_model, played=played)
        except TuningError:
            return None

    def _pool_bytes(self, config: EngineConfig, predicted: Estimate) -> int:
        """Return a pool that the memory at hand allows, in whole MiB when there is as much."""
        if config.kv_cache_memory_bytes:
            return config.kv_cache_memory_bytes
        memory = predicted.memory
        planned = (memory.kv_cache_gib if memory else 0.0) * _GIB
        most = _FREE_SHARE * self.devices[0].free_gib * _GIB
        size = int(min(planned, most))
        return max(size - size % 2**20 or size, 1)


def choose_subject(
    recommendation: Recommendation,
    plan: ValidationPlan,
    *,
    node: WorkerNode,
    devices: list[WorkerDevice],
    resolve_model: ResolveModel,
    allow_code: bool = False,
) -> Subject:
    """Return what is measured, with everything that is not as the recommendation asked.

    Raises:
        LookupError: No installed vLLM can run on these devices.
    """
    asked = parse_version(recommendation.request.engine.version)
    environment = choose_environment(node.environments, wanted=asked, on_cpu=is_cpu(devices[0]))
    version = _release(environment)
    notes: list[str] = []
    if version.text != asked.text:
        notes.append(f"Measured with vLLM {environment.version}, not {asked.text}.")
    hardware, same_hardware = _hardware(recommendation, devices)
    if not same_hardware:
        notes.append(f"Measured on {len(devices)} x {devices[0].name}, not on what was asked for.")
    model, same_model = _model(recommendation, plan, resolve_model)
    if not same_model:
        notes.append("The model at model_path is not the one that was asked for.")
    return Subject(
        recommendation=recommendation,
        environment=environment,
        version=version,
        devices=devices,
        model=model,
        model_path=plan.model_path or recommendation.request.model.id,
        hardware=hardware,
        as_asked=same_hardware and same_model and version.text == asked.text,
        notes=notes,
        resolve_model=resolve_model,
        allow_code=allow_code,
    )


def choose_environment(
    environments: Sequence[VllmEnvironment], *, wanted: EngineVersion, on_cpu: bool
) -> VllmEnvironment:
    """Return the installed vLLM of that release, else the one of the nearest release.

    Raises:
        LookupError: None is for this kind of device.
    """
    usable = [item for item in environments if item.is_cpu == on_cpu]
    if not usable:
        kind = "the CPU" if on_cpu else "GPUs"
        raise LookupError(f"no vLLM environment for {kind}; set SETPOINT_VLLM_ENVS")

    def distance(item: VllmEnvironment) -> tuple[int, ...]:
        found = _release(item).release
        return tuple(abs(a - b) for a, b in zip(found, wanted.release, strict=True))

    return min(usable, key=distance)


def describe_environment(subject: Subject, node: WorkerNode) -> Environment:
    """Return what produced the figures."""
    return Environment(
        node=node.node,
        gpus=subject.devices,
        driver=node.driver,
        vllm_version=subject.environment.version,
        setpoint_version=node.setpoint_version,
        cpu=subject.on_cpu,
        as_asked=subject.as_asked,
    )


def _release(environment: VllmEnvironment) -> EngineVersion:
    return EngineVersion.of(environment.version)


def _hardware(recommendation: Recommendation, devices: list[WorkerDevice]) -> tuple[Hardware, bool]:
    """Return the hardware that predictions are for, and whether it is the one asked for."""
    asked = recommendation.request.hardware
    if gpu_name(asked.gpu) == gpu_name(devices[0].name):
        if len(devices) <= (asked.gpus_per_node or 1) * (asked.nodes or 1):
            return asked, True
        return msgspec.structs.replace(asked, gpus_per_node=len(devices), nodes=1), True
    if is_cpu(devices[0]):
        return Hardware(gpu="cpu", host_memory_gib=devices[0].memory_gib), False
    return Hardware(gpu=devices[0].name, gpus_per_node=len(devices)), False


def _model(
    recommendation: Recommendation, plan: ValidationPlan, resolve_model: ResolveModel
) -> tuple[ModelRef, bool]:
    """Return the model that really runs: what `model_path` holds, when it can be read."""
    asked = recommendation.request.model
    config = _config_at(plan.model_path)
    if config is None:
        return asked, True
    found = msgspec.structs.replace(asked, config=config, weights_bytes=None)
    with contextlib.suppress(TuningError):
        if resolve_model(found) == resolve_model(
            msgspec.structs.replace(asked, weights_bytes=None)
        ):
            return asked, True
    return found, False


def _config_at(model_path: str | None) -> dict[str, object] | None:
    if model_path is None:
        return None
    try:
        content = json.loads((Path(model_path) / "config.json").read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
