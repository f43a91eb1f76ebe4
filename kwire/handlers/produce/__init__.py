"""Produce: the one path of a Kafka producer's batches into their partitions.

- `handler.py`: one request: for each partition admit, append, wait, answer.
- `admission.py`: what must hold before a batch is appended. New checks belong there, once.
- `append.py`: one batch, its state and its part of the answer; waiting until batches are committed.
- `transactions.py`: transactional batches, which the transaction coordinator has to admit.
- `template.py`: a cached parse and a cached answer for repeated requests.
- `errors.py`: errors as Produce reports them.
"""

from kwire.handlers.produce.handler import handle
from kwire.handlers.produce.template import RepeatedProduce

__all__ = ["RepeatedProduce", "handle"]
