"""HTTP servers of the tests, on this machine's loopback."""

from __future__ import annotations

import functools
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def listening(
    handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None, **keys: Any
) -> Iterator[str]:
    """A server whose requests ``handler`` answers, made with ``keys``; its address.

    It says nothing on the terminal. ``SimpleHTTPRequestHandler`` takes a ``directory``.
    """
    quiet: Any = type("Quiet", (handler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, **keys))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http{'s' * (tls is not None)}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
