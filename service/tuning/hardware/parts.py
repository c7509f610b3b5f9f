"""The catalogue's parts and cloud instances, read once from package data."""

from functools import cache
from importlib import resources
from typing import Literal

import msgspec

from service.tuning.hardware.spec import Gpu, GpuClass, Vendor

LinkKind = Literal["none", "board", "bridge", "ethernet"]
"""How GPUs reach each other: built into the board, by an optional bridge, or over Ethernet."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One number of a data sheet or a log, with the key of its source."""

    value: float | str
    source: str


class FigureSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a number comes from, and whether somebody read it there."""

    title: str
    verified: bool


class GpuEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the catalogue with its spellings and the source of every number."""

    name: str
    vendor: Vendor
    arch: str
    gpu_class: GpuClass
    driver_name: str
    aliases: tuple[str, ...]
    link_kind: LinkKind
    figures: dict[str, Figure]
    mig_slices: int = 0
    """Compute slices that MIG can cut it into; 0 when it cannot."""
    unified_memory: bool = False
    note: str | None = None


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A cloud instance size: the part it holds and how many."""

    name: str
    cloud: str
    gpu: str
    gpus: int
    host_memory_gib: float | None = None
    aliases: tuple[str, ...] = ()


class _GpuFile(msgspec.Struct, frozen=True, kw_only=True):
    sources: dict[str, FigureSource]
    ambiguous: dict[str, tuple[str, ...]]
    gpus: tuple[GpuEntry, ...]


class _InstanceFile(msgspec.Struct, frozen=True, kw_only=True):
    source: FigureSource
    instances: tuple[Instance, ...]


@cache
def entries() -> dict[str, GpuEntry]:
    """Return the parts by catalogue name, in the file's order."""
    return {entry.name: entry for entry in _gpu_file().gpus}


@cache
def gpus() -> dict[str, Gpu]:
    """Return the parts as the core uses them, by catalogue name."""
    return {name: _gpu(entry) for name, entry in entries().items()}


def ambiguous_names() -> dict[str, tuple[str, ...]]:
    """Return the names that fit several parts; the commonest part comes first."""
    return _gpu_file().ambiguous


def figure_sources() -> dict[str, FigureSource]:
    """Return what the source keys of the figures stand for."""
    return _gpu_file().sources


def instances() -> tuple[Instance, ...]:
    """Return the known cloud instance sizes."""
    return _instance_file().instances


def raw_data() -> bytes:
    """Return both files as they are, for the catalogue's content version."""
    return _read("gpus.json") + _read("instances.json")


@cache
def _gpu_file() -> _GpuFile:
    return msgspec.json.decode(_read("gpus.json"), type=_GpuFile)


@cache
def _instance_file() -> _InstanceFile:
    return msgspec.json.decode(_read("instances.json"), type=_InstanceFile)


def _read(name: str) -> bytes:
    return resources.files(__package__).joinpath("data", name).read_bytes()


def _gpu(entry: GpuEntry) -> Gpu:
    memory = entry.figures["memory_gib"]
    return Gpu(
        name=entry.name,
        vendor=entry.vendor,
        arch=entry.arch,
        gpu_class=entry.gpu_class,
        memory_gib=float(memory.value),
        memory_gb_vendor=_number(entry, "memory_gb_vendor"),
        memory_is_verified=figure_sources()[memory.source].verified,
        bandwidth_gb_s=_number(entry, "bandwidth_gb_s") or 0.0,
        bf16_tflops=_number(entry, "bf16_tflops"),
        fp16_tflops=_number(entry, "fp16_tflops"),
        fp8_tflops=_number(entry, "fp8_tflops"),
        int8_tops=_number(entry, "int8_tops"),
        fp4_tflops=_number(entry, "fp4_tflops"),
        compute_capability=_capability(entry),
        link_gb_s=_number(entry, "link_gb_s") or 0.0,
        pcie_gb_s=_number(entry, "pcie_gb_s") or 0.0,
        unified_memory=entry.unified_memory,
        driver_name=entry.driver_name,
    )


def _number(entry: GpuEntry, name: str) -> float | None:
    figure = entry.figures.get(name)
    return None if figure is None else float(figure.value)


def _capability(entry: GpuEntry) -> tuple[int, int] | None:
    figure = entry.figures.get("compute_capability")
    if figure is None:
        return None
    major, minor = str(figure.value).split(".")
    return int(major), int(minor)
