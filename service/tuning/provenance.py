"""What an answer is made from: versions of the program, its catalogues and its coefficients."""

import hashlib
from functools import cache
from importlib import metadata, resources

from msgspec import UNSET

from api_schemas.estimate import Provenance
from api_schemas.measurement import CalibratedBy
from service.tuning.engine.versions import EngineVersion

_CATALOGUES = ("service.tuning.models", "service.tuning.hardware", "service.tuning.engine")
_COEFFICIENTS = ("service.tuning.memory", "service.tuning.latency")
_DIGITS = 12


def provenance(
    version: EngineVersion, *, seed: int = 0, calibration: CalibratedBy | None = None
) -> Provenance:
    """Return the provenance of an answer for this vLLM release."""
    return Provenance(
        setpoint_version=setpoint_version(),
        engine_version=version.text,
        catalogue_version=_data_version(_CATALOGUES),
        coefficients_version=_data_version(_COEFFICIENTS),
        seed=seed,
        calibration=UNSET if calibration is None else calibration,
    )


@cache
def setpoint_version() -> str:
    """Return the version of the installed distribution, 0 when it runs from bare files."""
    try:
        return metadata.version("setpoint")
    except metadata.PackageNotFoundError:
        return "0"


@cache
def _data_version(packages: tuple[str, ...]) -> str:
    """Return a short digest of the packages' data files: equal data, equal version."""
    digest = hashlib.sha256()
    for package in packages:
        folder = resources.files(package) / "data"
        if not folder.is_dir():
            continue
        for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if file.is_file():
                digest.update(file.name.encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()[:_DIGITS]


def latency_version() -> str:
    """Return a short digest of the latency model's own data, which calibrations build on."""
    return _data_version(_COEFFICIENTS[1:])
