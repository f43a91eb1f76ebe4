"""OffsetCommit: store the positions of a group.

- `handler.py`: one request, decoded.
- `template.py`: a cached parse and a cached answer for repeated requests.
"""

from kwire.handlers.offset_commit.handler import handle
from kwire.handlers.offset_commit.template import RepeatedOffsetCommit

__all__ = ["RepeatedOffsetCommit", "handle"]
