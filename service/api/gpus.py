"""The catalogue of accelerators."""

from typing import Annotated
from urllib.parse import quote

from litestar import Response, get
from litestar.openapi.spec import Example
from litestar.params import PathParameter, QueryParameter

from api_schemas.catalogue import FigureDescription, GpuDescription, GpuList, GpuSummary
from service.api.bodies import encode
from service.api.describe import JSON, Answer, describe
from service.api.problems import not_found
from service.tuning.errors import UnknownGpu
from service.tuning.hardware.catalogue import all_gpus, figure_sources, gpu_aliases, gpu_entry
from service.tuning.hardware.spec import Gpu

_EXAMPLES = [Example(value="H100-SXM5-80GB")]
GpuName = Annotated[
    str, PathParameter(max_length=256, description="Catalogue name or alias.", examples=_EXAMPLES)
]


@get(
    "/gpus",
    operation_id="listGpus",
    summary="List the known GPUs",
    tags=["catalogues"],
    sync_to_thread=False,
    opt=describe(
        Answer(200, "Every GPU of the catalogue, or those that are called so.", kind=GpuList)
    ),
)
def list_gpus(
    q: Annotated[
        str | None,
        QueryParameter(max_length=256, description="Parts of a name or alias, in any order."),
    ] = None,
) -> Response[bytes]:
    """Return name, memory and bandwidth of the accelerators whose name or alias has every word."""
    words = (q or "").casefold().split()
    items = [_summary(gpu) for gpu in all_gpus() if not words or _is_called(gpu, words)]
    return Response(encode(GpuList(items=items)), media_type=JSON)


def _is_called(gpu: Gpu, words: list[str]) -> bool:
    names = [name.casefold() for name in (gpu.name, *gpu_aliases(gpu.name))]
    return any(all(word in name for word in words) for name in names)


@get(
    "/gpus/{name:str}",
    operation_id="getGpu",
    summary="Show one GPU with its sources",
    tags=["catalogues"],
    sync_to_thread=False,
    opt=describe(
        Answer(200, "The GPU with the source of every number.", kind=GpuDescription),
        problems=("not-found",),
    ),
)
def get_gpu(name: GpuName) -> Response[bytes]:
    """Return a GPU by its catalogue name, or by what a driver or a cloud calls it."""
    try:
        entry = gpu_entry(name)
    except UnknownGpu as error:
        raise not_found("GPU", name, hint=error.message) from None
    sources = figure_sources()
    description = GpuDescription(
        name=entry.name,
        vendor=entry.vendor,
        arch=entry.arch,
        gpu_class=entry.gpu_class,
        driver_name=entry.driver_name,
        aliases=list(gpu_aliases(entry.name)),
        figures={
            key: FigureDescription(
                value=figure.value,
                source=sources[figure.source].title,
                verified=sources[figure.source].verified,
            )
            for key, figure in entry.figures.items()
        },
        unified_memory=entry.unified_memory,
        note=entry.note,
    )
    return Response(encode(description), media_type=JSON)


def _summary(gpu: Gpu) -> GpuSummary:
    return GpuSummary(
        name=gpu.name,
        vendor=gpu.vendor,
        arch=gpu.arch,
        memory_gib=gpu.memory_gib,
        bandwidth_gb_s=gpu.bandwidth_gb_s,
        url=f"/gpus/{quote(gpu.name)}",
    )
