"""Transactions on a Kafka cluster: one writer per transactional id, which fences every earlier one.

`TransactionalWriter` stores batches of several partitions atomically. `coordinator` sends its requests to the
transaction coordinator.
"""
