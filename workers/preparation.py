"""What comes before any measurement: the recommendation, its devices, and what runs on them."""

import threading
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from api_schemas.recommendation import Recommendation
from api_schemas.study import Dimension
from api_schemas.worker import WorkerDevice, WorkerNode
from service.model_lookup import make_resolver
from service.queue import LEASE_WAIT_LIMIT_S, device_count, devices_for
from service.store.decoding import UnreadableRecord, decode_record
from service.store.models import ModelStore
from service.store.recommendations import RecommendationStore
from service.tuning.studies.space import largest_layout
from workers.devices import InForeignUse, NotEnoughDevices, choose_devices
from workers.inventory import find_devices
from workers.run import Failed, Run
from workers.settings import WorkerSettings
from workers.subject import Subject, choose_subject

_LEASE_POLL_S = 0.2
_FOREIGN_WAIT_S = 30.0


def prepare(
    run: Run,
    settings: WorkerSettings,
    node: WorkerNode,
    *,
    tenant: str,
    space: Mapping[str, Dimension] = MappingProxyType({}),
) -> Subject:
    """Return what is measured, once its devices are leased; the plan's minutes run from then on.

    With a space they are enough for its largest layout.

    Raises:
        Failed: The recommendation is gone, or the node cannot run it.
        Cancelled: Somebody asked to end it.
    """
    recommendation = _recommendation(run)
    count = device_count(largest_layout(recommendation.config, space))
    devices = _lease(run, node, recommendation, settings, count=count)
    run.start_clock()
    try:
        subject = choose_subject(
            recommendation,
            run.validation.plan,
            node=node,
            devices=devices,
            resolve_model=make_resolver(ModelStore(run.client, tenant=tenant)),
            allow_code=settings.allow_code,
        )
    except LookupError as error:
        raise Failed("start", str(error)) from error
    run.note(*subject.notes)
    return subject


def _recommendation(run: Run) -> Recommendation:
    stored = RecommendationStore(run.client, retention=None).find(run.validation.recommendation_id)
    if stored is None:
        raise Failed("lease", "the recommendation was removed")
    try:
        return decode_record(stored.body, Recommendation)
    except UnreadableRecord as error:
        reason = f"the recommendation is of another release, which this worker cannot read: {error}"
        raise Failed("lease", reason) from error


def _lease(
    run: Run,
    node: WorkerNode,
    recommendation: Recommendation,
    settings: WorkerSettings,
    *,
    count: int,
) -> list[WorkerDevice]:
    """Return so many devices that are ours; wait while others hold them.

    Raises:
        Failed: They did not become free in time, or the node can never give them.
    """
    gpu = recommendation.request.hardware.gpu
    waited_s, foreign_s, pause = 0.0, 0.0, threading.Event()
    while waited_s < LEASE_WAIT_LIMIT_S:
        run.check()
        wanted = devices_for(run.validation.plan, node, gpu=gpu)
        devices: list[WorkerDevice] = []
        try:
            devices = choose_devices(run.client, wanted, count=count)
            foreign_s = 0.0
        except NotEnoughDevices as error:
            # What an ended run used is in foreign use until the driver has cleaned up.
            foreign_s += _LEASE_POLL_S
            if foreign_s > _FOREIGN_WAIT_S or not isinstance(error, InForeignUse):
                raise Failed("lease", str(error)) from error
        if devices and not run.is_overtaking() and _take(run, devices, settings):
            return devices
        pause.wait(_LEASE_POLL_S)
        waited_s += _LEASE_POLL_S
        if node.driver is not None:
            node = msgspec.structs.replace(node, devices=find_devices()[0])
    raise Failed("lease", f"no free device within {LEASE_WAIT_LIMIT_S:.0f} s")


def _take(run: Run, devices: list[WorkerDevice], settings: WorkerSettings) -> bool:
    """Take the devices and one of the node's places for benchmarks."""
    for place in range(settings.benchmarks):
        names = [device.uuid for device in devices]
        if run.lease([*names, f"node:{settings.node}:{place}"]):
            return True
    return False
