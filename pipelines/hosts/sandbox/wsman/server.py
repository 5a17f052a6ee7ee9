"""The WinRM service of the sandbox: one shell table, an HTTP and an HTTPS listener."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from .auth import check_credentials
from .commands import Launcher
from .connection import Connection, Site
from .service import WsmanService
from .shells import Limits, ShellTable

_log = logging.getLogger(__name__)
#: The default listening address, and the address for clients on the same machine.
LOOPBACK = "127.0.0.1"
IDLE_TIMEOUT = 130.0  # Windows drops a silent connection after about two minutes
_HANDSHAKE_TIMEOUT = 10.0
_STOP_TIMEOUT = 3.0


def uid_of(peer: int, port: int) -> int | None:
    """User id of the process of this machine that has connected from port ``peer`` to ``port``.

    ``None`` where there is none: it is on another machine, or in another network namespace.
    https://docs.kernel.org/networking/proc_net_tcp.html
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        for row in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
            local, remote, uid = (row.split()[column] for column in (1, 2, 7))
            if (int(local[-4:], 16), int(remote[-4:], 16)) == (peer, port):
                return int(uid)
    return None


class Listener:
    """One port: accepts connections and gives each a thread of its own."""

    def __init__(
        self, host: str, port: int, site: Site, *, tls: ssl.SSLContext | None, max_connections: int
    ) -> None:
        self._site = site
        self._tls = tls
        self._max = max_connections
        self._lock = threading.Lock()
        self._connections: dict[threading.Thread, socket.socket] = {}
        self._stopping = False
        try:
            self._socket = socket.create_server((host, port), backlog=64)
        except OSError as error:
            raise OSError(
                error.errno, f"cannot listen on {host}:{port}: {error.strerror}"
            ) from error
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name=f"wsman-{self.port}", daemon=True)

    def start(self) -> None:
        """Begin to accept."""
        self._thread.start()

    def _accept(self) -> None:
        while not self._stopping:
            try:
                sock, address = self._socket.accept()
            except OSError:
                if not self._stopping:
                    time.sleep(0.05)  # out of descriptors, most likely: let some connection end
                continue
            if uid_of(address[1], self.port) not in {None, 0, os.getuid()}:
                sock.close()  # another user of this machine, who could take all connections
                continue
            thread = threading.Thread(
                target=self._serve, args=(sock, address), name="wsman-connection", daemon=True
            )
            with self._lock:
                if self._stopping or len(self._connections) >= self._max:
                    sock.close()
                    continue
                self._connections[thread] = sock
            thread.start()

    def _serve(self, sock: socket.socket, address: object) -> None:
        try:
            if self._tls is not None:
                # In this thread: a client that never finishes its handshake blocks no other.
                sock.settimeout(_HANDSHAKE_TIMEOUT)
                sock = self._tls.wrap_socket(sock, server_side=True)
                with self._lock:
                    self._connections[threading.current_thread()] = sock
            Connection(sock, address, self._site)
        except OSError as error:  # the peer is gone or does not speak TLS
            _log.debug("connection from %s ended: %s", address, error)
        except Exception:
            _log.exception("connection from %s failed", address)
        finally:
            with self._lock:
                self._connections.pop(threading.current_thread(), None)
            with contextlib.suppress(OSError):
                sock.close()

    def stop_accepting(self) -> None:
        """Close the port."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept(); close() alone does not
        self._socket.close()

    def hang_up(self, deadline: float) -> None:
        """Cut every connection and wait for the threads."""
        with self._lock:
            open_now = dict(self._connections)
        for sock in open_now.values():
            with contextlib.suppress(OSError):
                # On the TCP level: a TLS goodbye could block.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        for thread in (self._thread, *open_now):
            if thread.ident is not None:
                thread.join(timeout=max(0.0, deadline - time.monotonic()))


class WsmanServer:
    """Serves from construction until :meth:`stop`, or as a context manager.

    The HTTPS listener exists if ``certificate`` and ``key`` are given. Port 0 means any free one;
    see ``http_url`` and ``https_url``, for this machine. A taken port raises OSError with the
    port in its message.
    """

    def __init__(
        self,
        launcher: Launcher,
        credentials: Path,
        *,
        host: str = LOOPBACK,
        http_port: int = 0,
        https_port: int = 0,
        certificate: Path | None = None,
        key: Path | None = None,
        limits: Limits | None = None,
        service: Callable[[ShellTable], WsmanService] = WsmanService,
        idle_timeout: float = IDLE_TIMEOUT,
        max_connections: int = 100,
    ) -> None:
        if (certificate is None) != (key is None):
            raise ValueError("a certificate needs its key, and a key its certificate")
        user_file = check_credentials(credentials)
        tls = None
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.minimum_version = ssl.TLSVersion.TLSv1_2
            tls.load_cert_chain(certificate, key)
        self.shells = ShellTable(launcher, limits or Limits())
        answering = service(self.shells)
        self._listeners: list[Listener] = []
        self._stop_lock = threading.Lock()
        try:
            for port, context in ((http_port, None), (https_port, tls)):
                if context is None and self._listeners:
                    continue  # no certificate, no HTTPS
                site = Site(
                    answering, user_file, secure=context is not None, idle_timeout=idle_timeout
                )
                self._listeners.append(
                    Listener(host, port, site, tls=context, max_connections=max_connections)
                )
        except BaseException:
            self.stop()
            raise
        for listener in self._listeners:
            listener.start()

    @property
    def http_url(self) -> str:
        """For clients with NTLM and message encryption."""
        return f"http://{LOOPBACK}:{self._listeners[0].port}/wsman"

    @property
    def https_url(self) -> str | None:
        """For clients with NTLM inside TLS; None without a certificate."""
        if len(self._listeners) == 1:
            return None
        return f"https://{LOOPBACK}:{self._listeners[1].port}/wsman"

    def stop(self) -> None:
        """Kill every command's tree, close the sockets, wait for the threads. Idempotent."""
        with self._stop_lock:
            deadline = time.monotonic() + _STOP_TIMEOUT
            for listener in self._listeners:
                listener.stop_accepting()
            # First the commands: their waiting requests then end by themselves.
            self.shells.close()
            for listener in self._listeners:
                listener.hang_up(deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
