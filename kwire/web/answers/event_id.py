"""The msgspec type of event ids in parameters and fields. `EventId.parse` validates ids, with clearer messages."""

from typing import Annotated

import msgspec

LENGTH_MAX = 269
# The pattern is only for the documentation: the name of a topic that is not internal, a dash, and a number from 1 on.
EVENT_ID = Annotated[
    str,
    msgspec.Meta(
        max_length=LENGTH_MAX,
        extra_json_schema={"pattern": r"^(?!__)(?!\.{1,2}-[0-9]+$)[A-Za-z0-9._-]{1,249}-[1-9][0-9]{0,17}$"},
    ),
]
