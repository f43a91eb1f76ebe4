"""Produce: appends the batches of Kafka producers to their partitions. No other code appends them.

`handler` handles one request. New checks before an append belong in `admission`.
"""

from kwire.handlers.produce.handler import handle
from kwire.handlers.produce.template import ProduceTemplateCache

__all__ = ["ProduceTemplateCache", "handle"]
