"""Structured logging: an event name plus fields, one line each, on standard error."""

import logging
import sys
from typing import Literal

import structlog

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logging(*, level: str = "info", output: Literal["json", "console"] = "json") -> None:
    """Set up structlog and the standard library's loggers for this process.

    Fields bound with `structlog.contextvars` (such as the request id) are in every event.
    """
    renderer: structlog.typing.Processor
    if output == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[*_processors(), *_traceback(output), renderer],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    _route_standard_library(level=level, renderer=renderer, output=output)


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """Return a logger whose events carry this name."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(name=name)
    return logger


def _processors() -> list[structlog.typing.Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _traceback(output: str) -> list[structlog.typing.Processor]:
    return [structlog.processors.format_exc_info] if output == "json" else []


def _route_standard_library(
    *, level: str, renderer: structlog.typing.Processor, output: str
) -> None:
    """Let loggers of libraries (uvicorn, rq) write the same lines."""
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_processors(),
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *_traceback(output),
            renderer,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(_LEVELS[level], logging.WARNING))
