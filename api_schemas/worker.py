"""Who can prove a recommendation: nodes, their accelerators and vLLM environments."""

from typing import Literal

from api_schemas.base import Record, Value

PciePath = Literal["board", "switch", "switches", "host_bridge", "numa_node", "system"]
"""What two devices have in common on the way over PCIe, the nearest first.

The levels are those of the driver's library: one board with several GPUs, one switch, several
switches, one host bridge, one NUMA node (CPU socket), or only the link between sockets.
"""


class WorkerDevice(Value, frozen=True, kw_only=True):
    """One accelerator of a node, a slice of one, or the node's CPU, as the driver reports it."""

    name: str
    uuid: str
    memory_gib: float
    free_gib: float
    compute_capability: str | None = None
    mig: bool = False
    """Whether it is split into slices; then they are leased, and never the whole."""
    slice_of: str | None = None
    """UUID of the GPU that this slice (MIG instance) is cut from."""
    nvlink_peers: list[str] = []
    """UUIDs at the other end of its NVLinks, or `switch:` with an address."""
    pcie_paths: dict[str, PciePath] = {}
    """By the UUID of every other GPU of the node, how near it is over PCIe."""
    sm_clock_mhz: int | None = None
    """Clock of the multiprocessors at this moment."""
    max_sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    """Clock of the memory at this moment."""
    max_memory_clock_mhz: int | None = None
    foreign_processes: int = 0
    """Processes on it that compute and belong to no run that is worked on."""


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
