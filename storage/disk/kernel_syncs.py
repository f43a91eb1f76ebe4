"""Syncs without a thread: the kernel syncs files in the background and reports when it is done (Linux AIO).

A thread that syncs needs Python's interpreter lock before and after each sync. Beside a busy event loop it waits for
that lock up to a hundred times longer than for the disk.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import select
import struct
from contextlib import suppress
from typing import Final, NamedTuple

# Syncs that may be under way at the same time.
SYNCS_MAX: Final = 64


class _Calls(NamedTuple):
    """The numbers of the system calls; the C library has no functions for them."""

    io_setup: int
    io_destroy: int
    io_getevents: int
    io_submit: int


_CALLS: Final = {"x86_64": _Calls(206, 207, 208, 209), "aarch64": _Calls(0, 1, 4, 2)}

# struct iocb: what is given back with the result; key and flags; operation, priority, descriptor; buffer, length,
# offset and a reserved field, which a sync does not use; flags, and the descriptor to notify.
_REQUEST: Final = struct.Struct("<QIIHhIQQqQII")
_OPERATION_FDSYNC: Final = 3
_FLAG_NOTIFY: Final = 1
# struct io_event: what was given, the address of the request, and two results.
_EVENT: Final = struct.Struct("<QQqq")


class KernelSyncs:
    """Syncs of file descriptors. Called from one thread; no call waits for the disk, except :meth:`wait`."""

    def __init__(self) -> None:
        """Raises ``OSError`` where the system does not allow it."""
        calls = _CALLS.get(platform.machine())
        if calls is None:
            raise OSError(errno.ENOSYS, "no system call numbers for this processor")
        self._calls = calls
        # These calls return at once, so they keep the interpreter lock.
        self._call = ctypes.PyDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        context = ctypes.c_ulong(0)
        if self._call(ctypes.c_long(calls.io_setup), ctypes.c_uint(SYNCS_MAX), ctypes.byref(context)) < 0:
            raise _last_error("io_setup")
        self._context = context
        self._request = ctypes.create_string_buffer(_REQUEST.size)
        self._address = ctypes.c_void_p(ctypes.addressof(self._request))
        self._events = ctypes.create_string_buffer(_EVENT.size * SYNCS_MAX)
        # Becomes readable when syncs are done.
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.under_way = 0
        self._next_number = 0

    def begin(self, fd: int) -> int | None:
        """Begin to sync the data of a file, whose descriptor may be closed then. Returns a number for this sync.

        None: it was not begun, and has to be done in another way.
        """
        if self.under_way >= SYNCS_MAX:
            return None
        number = self._next_number
        request = (number, 0, 0, _OPERATION_FDSYNC, 0, fd, 0, 0, 0, 0, _FLAG_NOTIFY, self.event_fd)
        _REQUEST.pack_into(self._request, 0, *request)
        begun = self._call(
            ctypes.c_long(self._calls.io_submit), self._context, ctypes.c_long(1), ctypes.byref(self._address)
        )
        if begun != 1:  # the file system does not support it, or the system has too many
            return None
        self._next_number += 1
        self.under_way += 1
        return number

    def done(self) -> list[tuple[int, int]]:
        """The syncs that are done since the last call: number, and 0 or the error number."""
        with suppress(BlockingIOError):  # nothing was reported since then
            os.eventfd_read(self.event_fd)
        count = self._call(
            ctypes.c_long(self._calls.io_getevents),
            self._context,
            ctypes.c_long(0),
            ctypes.c_long(SYNCS_MAX),
            ctypes.byref(self._events),
            None,
        )
        if count < 0:
            raise _last_error("io_getevents")
        self.under_way -= count
        events = (_EVENT.unpack_from(self._events, at * _EVENT.size) for at in range(count))
        return [(number, -result if result < 0 else 0) for number, _, result, _ in events]

    def wait(self, seconds: float) -> None:
        """Wait until a sync is done, but not longer than ``seconds``."""
        poll = select.poll()
        poll.register(self.event_fd, select.POLLIN)
        poll.poll(seconds * 1000)

    def close(self) -> None:
        """Waits for syncs that are under way."""
        self._call(ctypes.c_long(self._calls.io_destroy), self._context)
        os.close(self.event_fd)


def _last_error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
