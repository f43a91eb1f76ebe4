"""A pytest plugin: sockets that kafka-python leaves open are closed without a warning when they are collected.

kafka-python does not close the sockets of refused connections, and clients that could not connect leave the pair that
wakes their loop. The garbage collector finds them, possibly in a later test. Every other socket that is left open, also
one of kwire, still fails the test in which it is found.
"""

import socket
import ssl
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class QuietSocket(socket.socket):
    __slots__ = ()

    def __del__(self) -> None:
        self.close()


class QuietSslSocket(ssl.SSLSocket):
    def __del__(self) -> None:
        self.close()


def _close_plain_sockets(inet: ModuleType) -> None:
    create = inet.KafkaNetSocket.socket

    @wraps(create)
    def create_quiet(*args: Any, **options: Any) -> Any:
        made = create(*args, **options)
        if type(made) is socket.socket:
            made.__class__ = QuietSocket
        return made

    inet.KafkaNetSocket.socket = create_quiet


def _close_tls_sockets(transport: ModuleType) -> None:
    init = transport.KafkaSSLTransport.__init__

    @wraps(init)
    def init_quiet(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        if type(self._sock) is ssl.SSLSocket:
            self._sock.__class__ = QuietSslSocket

    transport.KafkaSSLTransport.__init__ = init_quiet


def _close_wakeup_sockets(selector: ModuleType) -> None:
    init = selector.NetworkSelector.__init__

    @wraps(init)
    def init_quiet(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        for one in (self._wakeup_r, self._wakeup_w):
            one.__class__ = QuietSocket

    selector.NetworkSelector.__init__ = init_quiet


_PATCHES: Mapping[str, Callable[[ModuleType], None]] = {
    "kafka.net.inet": _close_plain_sockets,
    "kafka.net.selector": _close_wakeup_sockets,
    "kafka.net.transport": _close_tls_sockets,
}


class _PatchingLoader(Loader):
    def __init__(self, loader: Loader, patch: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._patch(module)


class _Finder(MetaPathFinder):
    """Patches modules when they are imported. Importing them here would make every test run start later."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        patch = _PATCHES.get(fullname)
        spec = None if patch is None else PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None and patch is not None:
            spec.loader = _PatchingLoader(spec.loader, patch)
        return spec


sys.meta_path.insert(0, _Finder())
