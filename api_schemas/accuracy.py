"""How far predictions are from published measurements."""

from typing import Annotated

from msgspec import Meta

from api_schemas.base import Json, Response


class AccuracyReport(Response, frozen=True, kw_only=True):
    """Error tables of both models, on measurements with their sources."""

    memory: Annotated[
        dict[str, Json],
        Meta(description="Relative errors of the memory model by slice and by part."),
    ]
    latency: Annotated[
        dict[str, Json],
        Meta(
            description="Relative errors on groups left out of the fit, by GPU class, family, "
            "release and metric, with the coverage of the 80 % bands."
        ),
    ]
