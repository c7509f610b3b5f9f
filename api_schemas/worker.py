"""Who can prove a recommendation: nodes, their accelerators and vLLM environments."""

from api_schemas.base import Record, Value


class WorkerDevice(Value, frozen=True, kw_only=True):
    """One accelerator of a node, or its CPU, as the driver reports it."""

    name: str
    uuid: str
    memory_gib: float
    free_gib: float
    compute_capability: str | None = None
    mig: bool = False
    nvlink_peers: list[str] = []
    foreign_processes: int = 0


class VllmEnvironment(Value, frozen=True, kw_only=True):
    """A vLLM that is installed on a node and started by path."""

    version: str
    path: str
    is_cpu: bool


class WorkerNode(Record, frozen=True, kw_only=True):
    """A node as it registered itself; it is gone when its heartbeat is."""

    node: str
    started_at: str
    heartbeat_at: str
    setpoint_version: str
    driver: str | None
    devices: list[WorkerDevice]
    environments: list[VllmEnvironment]
    queues: list[str]


class QueueState(Record, frozen=True, kw_only=True):
    """What waits in one queue, of all tenants."""

    queue: str
    waiting: int
    """Validations and studies that no worker has taken."""
    oldest_waiting_s: float | None
    """Seconds since the oldest of them was asked for; None when none waits."""


class WorkerList(Record, frozen=True, kw_only=True):
    """All nodes with a live heartbeat."""

    items: list[WorkerNode]
    queues: list[QueueState] = []
    """The queues of these nodes, and others in which something waits."""
