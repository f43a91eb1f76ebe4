"""The id of an event as a parameter or a field; what is wrong with one is told by `EventId` in better words."""

from typing import Annotated

import msgspec

LENGTH_MAX = 269
# For the documentation alone: a legal topic name that is not internal, and a number from 1 on.
EVENT_ID = Annotated[
    str,
    msgspec.Meta(
        max_length=LENGTH_MAX,
        extra_json_schema={"pattern": r"^(?!__)(?!\.{1,2}-[0-9]+$)[A-Za-z0-9._-]{1,249}-[1-9][0-9]{0,17}$"},
    ),
]
