"""Whether bytes of a file are in memory, asked of the kernel without touching them.

Reading a byte to find out would not do: a read that may not wait still starts reading ahead, megabytes at a time, and
that work is done by whoever asked. Linux 6.5 and newer count the cached pages of a file in one go (cachestat: 3 to 6 µs
for a megabyte, 19 µs when it was written in small pieces); older ones are asked about each page of a map (mincore: 22
to 38 µs). A page on its way from the disk counts as cached for the former only; who touches it waits for the rest of
that one read, which somebody else has begun.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from array import array
from typing import Final

_PAGE_BYTES: Final = mmap.PAGESIZE
_READ_ONLY: Final = 0  # PyBUF_SIMPLE


class _Buffer(ctypes.Structure):
    """Python's own description of a buffer, for the address in it."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_Buffer),)
_release_buffer.restype = None
_libc = ctypes.CDLL(None, use_errno=True)
_mincore = _libc.mincore
_mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)

# New calls have the same number on all machines that Python is built for here, x86_64 and arm64 among them.
_CACHESTAT_NUMBER: Final = 451
_NO_FLAGS: Final = 0
_COUNTS_AT: Final = 2


class _Question(threading.local):
    """What the call reads and writes, one for each thread: those may ask at the same time.

    An array, because it is quicker to fill than ctypes structures are to make.
    """

    def __init__(self) -> None:
        # struct cachestat_range (off, len), then struct cachestat (nr_cache and four more)
        self.words = array("Q", bytes(7 * 8))
        self.range_address, _ = self.words.buffer_info()
        self.counts_address = self.range_address + _COUNTS_AT * self.words.itemsize


_question = _Question()
_syscall = _libc.syscall
_syscall.argtypes = (ctypes.c_long, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)
_syscall.restype = ctypes.c_long


def is_cached(fd: int, start: int, end: int) -> bool | None:
    """Whether every page of these bytes of the file is in memory; None when the kernel does not tell."""
    if end <= start:
        return True
    start &= ~(_PAGE_BYTES - 1)
    question = _question
    words = question.words
    words[0], words[1] = start, end - start
    if _syscall(_CACHESTAT_NUMBER, fd, question.range_address, question.counts_address, _NO_FLAGS):
        return None  # not known to this kernel, forbidden, or no file it can be asked about: the other way answers
    return words[_COUNTS_AT] >= (end - start + _PAGE_BYTES - 1) // _PAGE_BYTES


def is_resident(view: memoryview) -> bool:
    """Whether every page under ``view``, a slice of a map, is in memory."""
    size = len(view)
    if not size:
        return True
    buffer = _Buffer()
    _get_buffer(view, ctypes.byref(buffer), _READ_ONLY)
    try:
        address: int = buffer.buf
        start = address & ~(_PAGE_BYTES - 1)
        pages = (address + size - start + _PAGE_BYTES - 1) // _PAGE_BYTES
        states = ctypes.create_string_buffer(pages)
        if _mincore(start, pages * _PAGE_BYTES, states):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return b"\0" not in states.raw
    finally:
        _release_buffer(ctypes.byref(buffer))
