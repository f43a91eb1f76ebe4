"""OffsetCommit: commit the offsets of a group. `handler` handles decoded requests, `template` handles repeated ones."""

from kwire.handlers.offset_commit.handler import handle
from kwire.handlers.offset_commit.template import OffsetCommitTemplateCache

__all__ = ["OffsetCommitTemplateCache", "handle"]
