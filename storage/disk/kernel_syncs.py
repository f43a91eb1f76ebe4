"""Asynchronous syncs by the kernel (Linux AIO), without a thread.

A thread that syncs needs Python's interpreter lock before and after each sync. If an event loop is busy at the same
time, the thread waits up to a hundred times longer for that lock than for the disk.
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

# At most this many syncs are in progress at the same time.
SYNCS_MAX: Final = 64


class _Calls(NamedTuple):
    """The numbers of the system calls, for which the C library has no functions."""

    io_setup: int
    io_destroy: int
    io_getevents: int
    io_submit: int


_CALLS: Final = {"x86_64": _Calls(206, 207, 208, 209), "aarch64": _Calls(0, 1, 4, 2)}

# struct iocb: user data; key, read/write flags; operation, priority, file descriptor; buffer, length, offset, reserved
# (a sync uses none of these four); request flags, the eventfd to notify.
_REQUEST: Final = struct.Struct("<QIIHhIQQqQII")
_OPERATION_FDSYNC: Final = 3
_FLAG_NOTIFY: Final = 1
# struct io_event: user data, the address of the request, and two results.
_EVENT: Final = struct.Struct("<QQqq")


class KernelSyncs:
    """Asynchronous syncs of file descriptors, for one thread. Only :meth:`wait` and :meth:`close` block."""

    def __init__(self) -> None:
        """Raises ``OSError`` if the system does not support or allow asynchronous syncs."""
        calls = _CALLS.get(platform.machine())
        if calls is None:
            raise OSError(errno.ENOSYS, "no system call numbers for this processor")
        self._calls = calls
        # The calls are made without releasing the interpreter lock. All of them return immediately, except io_destroy.
        self._call = ctypes.PyDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        context = ctypes.c_ulong(0)
        if self._call(ctypes.c_long(calls.io_setup), ctypes.c_uint(SYNCS_MAX), ctypes.byref(context)) < 0:
            raise _last_error("io_setup")
        self._context = context
        self._request = ctypes.create_string_buffer(_REQUEST.size)
        self._address = ctypes.c_void_p(ctypes.addressof(self._request))
        self._events = ctypes.create_string_buffer(_EVENT.size * SYNCS_MAX)
        # The descriptor becomes readable when syncs have ended.
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.in_progress_count = 0
        self._next_number = 0

    def begin(self, fd: int) -> int | None:
        """Begin to sync the data of a file and return the number of this sync. ``fd`` may be closed afterwards.

        Returns None if the sync was not begun. Then the caller has to sync in another way.
        """
        if self.in_progress_count >= SYNCS_MAX:
            return None
        number = self._next_number
        request = (number, 0, 0, _OPERATION_FDSYNC, 0, fd, 0, 0, 0, 0, _FLAG_NOTIFY, self.event_fd)
        _REQUEST.pack_into(self._request, 0, *request)
        begun = self._call(
            ctypes.c_long(self._calls.io_submit), self._context, ctypes.c_long(1), ctypes.byref(self._address)
        )
        if begun != 1:  # the file system has no asynchronous syncs, or too many are in progress on this system
            return None
        self._next_number += 1
        self.in_progress_count += 1
        return number

    def done(self) -> list[tuple[int, int]]:
        """Return (number, 0 or the error number) of the syncs that ended since the last call."""
        with suppress(BlockingIOError):  # nothing was reported since the last call
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
        self.in_progress_count -= count
        events = (_EVENT.unpack_from(self._events, at * _EVENT.size) for at in range(count))
        return [(number, -result if result < 0 else 0) for number, _, result, _ in events]

    def wait(self, seconds: float) -> None:
        """Wait until a sync ends, for at most ``seconds``."""
        poll = select.poll()
        poll.register(self.event_fd, select.POLLIN)
        poll.poll(seconds * 1000)

    def close(self) -> None:
        """Release the kernel context. Waits for syncs in progress."""
        self._call(ctypes.c_long(self._calls.io_destroy), self._context)
        os.close(self.event_fd)


def _last_error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
