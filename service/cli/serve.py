"""`setpoint serve` and `setpoint worker`: the processes."""

import subprocess
import sys

import click


@click.command()
@click.option("--host", help="Address to listen on; loopback when not given.")
@click.option("--port", type=int, help="Port to listen on.")
@click.option("--data-dir", help="Folder of the embedded store.")
@click.option("--processes", type=int, help="Processes that answer requests; one when not given.")
@click.option("--no-worker", is_flag=True, help="Start no local worker.")
def serve(
    *,
    host: str | None,
    port: int | None,
    data_dir: str | None,
    processes: int | None,
    no_worker: bool,
) -> None:
    """Start the API, the embedded store and one local worker."""
    from service.run import serve as run  # noqa: PLC0415  # the web framework is loaded on use

    run(host=host, port=port, data_dir=data_dir, processes=processes, with_worker=not no_worker)


@click.command()
def worker() -> None:
    """Start a worker on this node; it needs SETPOINT_REDIS_URL or a running `setpoint serve`."""
    # A process of its own: the command line never imports the workers.
    sys.exit(subprocess.call([sys.executable, "-m", "workers"]))
