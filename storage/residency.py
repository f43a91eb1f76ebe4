"""Whether bytes of a map are in memory, asked of the kernel without touching them (mincore).

Reading a byte to find out would not do: a read that may not wait still starts reading ahead, megabytes at a time, and
that work is done by whoever asked.
"""

from __future__ import annotations

import ctypes
import mmap
import os
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
_mincore = ctypes.CDLL(None, use_errno=True).mincore
_mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


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
