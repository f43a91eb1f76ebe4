"""Giving up a large message in chunks: to free 240,000 elements at once takes 40 milliseconds."""

import sys
from collections.abc import Generator
from typing import Any

# Elements that are freed at once, a tenth of a millisecond.
ELEMENTS_PER_CHUNK = 300
# References to a list or an element that only its message refers to: of this module, and of what holds it.
_OWN_REFERENCES = 4


def release(message: Any) -> Generator[None, None, None]:
    """Empty the lists of a message that is not needed any more; yields between two chunks.

    Lists and elements that something else refers to stay as they are.
    """
    for name in getattr(type(message), "__slots__", ()):
        elements = getattr(message, name, None)
        if type(elements) is list:
            yield from _empty(elements)


def _empty(elements: list[Any]) -> Generator[None, None, None]:
    if sys.getrefcount(elements) > _OWN_REFERENCES:
        return
    while elements:
        # All elements have the same fields, and most of them have no list among these.
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
