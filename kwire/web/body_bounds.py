"""How many objects a body may have: decoding is one step that cannot be interrupted, and each object takes its time.

Ten megabytes of empty objects would hold the loop for half a second. So braces are counted first, which is quick. Those
inside texts count too; no sensible request has so many of them.
"""

from kwire.web.errors import Refusal

# To decode so many objects takes some ten milliseconds.
OBJECTS_MAX = 50_000


def check_objects(raw: bytes) -> None:
    """Raise a refusal with status 413 for a body of too many objects."""
    if len(raw) > OBJECTS_MAX and (count := raw.count(b"{")) > OBJECTS_MAX:
        raise Refusal(
            f"the body has {count} objects, {OBJECTS_MAX} are allowed: send them in several requests",
            code="TooManyObjects",
            status=413,
            limit=OBJECTS_MAX,
        )
