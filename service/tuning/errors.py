"""What the core refuses, one class per event; it knows no HTTP."""


class TuningError(Exception):
    """Base of everything the core refuses; `code` is stable and `pointer` names the field."""

    code = "invalid-request"

    def __init__(self, message: str, *, pointer: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer


class InvalidRequest(TuningError):
    """A value that is well-formed but makes no sense."""

    code = "invalid-request"


class BeyondCache(InvalidRequest):
    """A load whose requests can never hold their KV cache, in an engine that may start."""


class UnknownModel(TuningError):
    """A model id that no catalogue holds, and no config came with it."""

    code = "unknown-model"


class UnsupportedArchitecture(TuningError):
    """A config whose layout is not known; `missing` names what would be needed."""

    code = "unsupported-architecture"

    def __init__(
        self, message: str, *, missing: tuple[str, ...] = (), pointer: str = "/model/config"
    ) -> None:
        super().__init__(message, pointer=pointer)
        self.missing = missing


class UnknownGpu(TuningError):
    """A GPU name that no catalogue holds, and no spec came with it."""

    code = "unknown-gpu"


class UnknownEngineVersion(TuningError):
    """A vLLM version outside what is known."""

    code = "unknown-engine-version"
