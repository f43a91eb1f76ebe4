"""Frees a large message in chunks. Freeing 240,000 elements at once would take 40 milliseconds."""

import sys
from collections.abc import Generator
from typing import Any

# Elements that are freed between two yields. Freeing them takes a tenth of a millisecond.
ELEMENTS_PER_CHUNK = 300
# The reference count of a list or element to which only its message and this module refer.
_OWN_REFERENCES = 4


def release(message: Any) -> Generator[None, None, None]:
    """Empty the lists of a message that is no longer needed, and yield after each chunk.

    Lists and elements to which other objects refer are left unchanged.
    """
    for name in getattr(type(message), "__slots__", ()):
        elements = getattr(message, name, None)
        if type(elements) is list:
            yield from _empty(elements)


def _empty(elements: list[Any]) -> Generator[None, None, None]:
    if sys.getrefcount(elements) > _OWN_REFERENCES:
        return
    while elements:
        # All elements have the same fields, so the last one shows whether they have lists. Most have none.
        if _has_list(elements[-1]):
            for one in elements[-ELEMENTS_PER_CHUNK:]:
                if sys.getrefcount(one) <= _OWN_REFERENCES:
                    yield from release(one)
        if len(elements) <= ELEMENTS_PER_CHUNK:
            return
        del elements[-ELEMENTS_PER_CHUNK:]
        yield


def _has_list(element: Any) -> bool:
    return any(type(getattr(element, name, None)) is list for name in getattr(type(element), "__slots__", ()))
