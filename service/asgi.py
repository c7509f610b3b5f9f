"""The application for an ASGI server, built from the environment; the only import-time effect."""

from service.app import create_app
from service.log import configure_logging
from service.settings import read_settings

_settings = read_settings()
configure_logging(level=_settings.log_level, output=_settings.log_format)
app = create_app(_settings)
