"""`python -m workers.health`: exit code 0 while this node's heartbeat lives in the store."""

import sys

from service.store.client import StoreUnavailable, connect
from service.store.workers import live_nodes
from workers.settings import read_worker_settings

_TIMEOUT_S = 5.0


def main() -> int:
    """Return 0 when the node is registered, else 1; why not goes to standard error."""
    settings = read_worker_settings()
    try:
        with connect(settings.redis_url, timeout_s=_TIMEOUT_S) as client:
            nodes = [node.node for node in live_nodes(client)]
    except StoreUnavailable as error:
        sys.stderr.write(f"worker: the store cannot be reached: {error}\n")
        return 1
    if settings.node in nodes:
        return 0
    sys.stderr.write(f"worker: {settings.node} has no live heartbeat\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
