"""Connections that nobody reads from."""

import socket

import pytest

from service.serving import give_up_unread


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="an option of Linux")
def test_a_client_that_never_reads_loses_its_connection() -> None:
    """Once its buffers are full, sending to it fails after the limit instead of waiting for ever.

    Connections have the limit of the listener that took them.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        give_up_unread(listener, limit_s=0.2)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(listener.getsockname())
        connection, _ = listener.accept()

        with connection, pytest.raises(TimeoutError):
            _send_for_ever(connection)


def _send_for_ever(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"x" * 65_536)
