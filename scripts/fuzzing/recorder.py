"""A proxy on loopback that records every request of the clients, in order."""

import contextlib
import socket
import struct
import threading
from typing import Self

HOST = "127.0.0.1"
# The maximum number of recorded frames. Clients that work correctly send far fewer.
FRAMES_MAX = 100_000
CHUNK_BYTES = 64 * 1024


class Recorder:
    """Listens on `port` and forwards each connection to `target_port`. `frames` has the requests of all clients."""

    def __init__(self) -> None:
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        self.target_port = 0
        self.frames: list[bytes] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = {self._listening}

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
                server = socket.create_connection((HOST, self.target_port))
            except OSError:
                return
            with self._lock:
                self._open |= {client, server}
            threading.Thread(target=self._carry, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._carry, args=(server, client, False), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, is_kept: bool) -> None:
        pending = bytearray()
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                target.sendall(chunk)
                if is_kept:
                    pending += chunk
                    self._take(pending)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _take(self, pending: bytearray) -> None:
        while len(pending) >= 4:
            (size,) = struct.unpack_from(">i", pending)
            if len(pending) < 4 + size:
                return
            with self._lock:
                if len(self.frames) < FRAMES_MAX:
                    self.frames.append(bytes(pending[: 4 + size]))
            del pending[: 4 + size]
