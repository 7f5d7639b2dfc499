"""Quick requests to a daemon's unix socket, without a client library."""

import http.client
import json
import socket
from http import HTTPStatus
from pathlib import Path
from typing import Any


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def request(path: Path, path_and_query: str, seconds: float = 2.0, method: str = "GET") -> Any:
    """Return the answer, JSON or text, to a request at the socket `path`. Raises OSError."""
    connection = _Connection(path, seconds)
    try:
        connection.request(method, path_and_query)
        response = connection.getresponse()
        body = response.read()
        if response.status not in (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT):
            raise OSError(f"{path} answered {response.status} to {path_and_query}")
        if response.getheader("Content-Type", "").startswith("application/json"):
            return json.loads(body)
        return body.decode()
    except http.client.HTTPException as error:
        raise OSError(f"{path} did not answer {path_and_query}: {error!r}") from None
    finally:
        connection.close()
