"""Slices of a GPU: what a MIG profile leaves of memory and compute."""

import re

import msgspec

from service.tuning.hardware.parts import GpuEntry
from service.tuning.hardware.spec import Gpu

_PROFILE = re.compile(r"(?:\bmig[\s-]*)?\b(\d)g\.(\d{1,3})gb(?:\+\w+)*", re.IGNORECASE)
_LABEL_TOLERANCE = 0.1
"""How far a profile's rounded size label may lie from a whole number of memory slices."""

_LOST_SHARE = 0.004
"""What a slice lacks of its share, as part of the whole GPU: NVIDIA's profile tables for the
A100 (9.5, 19.5, 39.25 GiB of 79.2), as remembered."""


class MigProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A profile such as 3g.40gb: compute slices and the memory that its label states."""

    compute_slices: int
    memory_gb: int

    @property
    def label(self) -> str:
        """The profile as nvidia-smi writes it."""
        return f"{self.compute_slices}g.{self.memory_gb}gb"


def split_profile(name: str) -> tuple[str, MigProfile | None]:
    """Return `name` without its MIG profile, and the profile (None when it names none)."""
    found = _PROFILE.search(name)
    if found is None:
        return name, None
    rest = f"{name[: found.start()]} {name[found.end() :]}"
    profile = MigProfile(compute_slices=int(found[1]), memory_gb=int(found[2]))
    return rest, profile


def slice_gpu(gpu: Gpu, profile: MigProfile, *, entry: GpuEntry) -> Gpu | None:
    """Return the slice of `gpu`, or None when the part has no such profile.

    Memory and bandwidth are cut in eighths (quarters on parts with four compute slices),
    compute by its own slices. Slices have no NVLink. The memory is an estimate: no slice's
    driver total was read from a log.
    """
    if entry.mig_slices == 0 or gpu.memory_gb_vendor is None:
        return None
    memory_slices = 8 if entry.mig_slices > 4 else 4  # noqa: PLR2004 - four-slice parts
    taken = profile.memory_gb * memory_slices / gpu.memory_gb_vendor
    if not _is_profile(taken, profile, memory_slices=memory_slices, entry=entry):
        return None
    memory_share = round(taken) / memory_slices
    compute_share = profile.compute_slices / entry.mig_slices
    return msgspec.structs.replace(
        gpu,
        name=f"{gpu.name} MIG {profile.label}",
        driver_name=f"{gpu.driver_name} MIG {profile.label}",
        memory_gib=_memory_gib(gpu, share=memory_share),
        memory_gb_vendor=float(profile.memory_gb),
        memory_is_verified=False,
        bandwidth_gb_s=gpu.bandwidth_gb_s * memory_share,
        bf16_tflops=_share(gpu.bf16_tflops, compute_share),
        fp16_tflops=_share(gpu.fp16_tflops, compute_share),
        fp8_tflops=_share(gpu.fp8_tflops, compute_share),
        int8_tops=_share(gpu.int8_tops, compute_share),
        fp4_tflops=_share(gpu.fp4_tflops, compute_share),
        link_gb_s=0.0,
    )


def _memory_gib(gpu: Gpu, *, share: float) -> float:
    lost_gib = 0.0 if share == 1 else _LOST_SHARE * gpu.memory_gib
    return round(gpu.memory_gib * share - lost_gib, 2)


def _is_profile(taken: float, profile: MigProfile, *, memory_slices: int, entry: GpuEntry) -> bool:
    if not 1 <= profile.compute_slices <= entry.mig_slices:
        return False
    if not 1 <= round(taken) <= memory_slices:
        return False
    return abs(taken - round(taken)) <= _LABEL_TOLERANCE * round(taken)


def _share(rate: float | None, share: float) -> float | None:
    return None if rate is None else rate * share
