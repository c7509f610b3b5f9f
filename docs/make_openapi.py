"""Prints the API's OpenAPI document, as a running service answers it at `/openapi.json`."""

import sys

import redis

from service.api.openapi import document
from service.app import create_app
from service.settings import Settings


def make_openapi() -> bytes:
    """Return the document; the store that the application is given is never asked."""
    return document(create_app(Settings(warm_up=False), redis.Redis()))


if __name__ == "__main__":
    sys.stdout.buffer.write(make_openapi())
