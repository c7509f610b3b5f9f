"""The framework's application, with our OpenAPI document where libraries ask it for one."""

from typing import Any

import msgspec
from litestar import Litestar
from litestar.openapi import OpenAPIConfig

from service.api.openapi import document
from service.tuning.provenance import setpoint_version


class Application(Litestar):
    """An application that makes no document of its own but knows the one it serves."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401  # the framework's own
        super().__init__(*args, **options, openapi_config=None)
        # Set late: given earlier, the framework would serve a second document.
        self.openapi_config = OpenAPIConfig(title="Setpoint", version=setpoint_version())

    @property
    def openapi_schema(self) -> Any:  # noqa: ANN401  # whatever has `to_schema`
        """Return the document in the shape that the framework's own would have."""
        return _Document(self)


class _Document:
    def __init__(self, app: Litestar) -> None:
        self._app = app

    def to_schema(self) -> dict[str, Any]:
        """Return the document as plain values."""
        schema: dict[str, Any] = msgspec.json.decode(document(self._app))
        return schema
