"""The transaction coordinator: fences producers per transactional id, and commits and aborts their transactions.

A `shard` is the state of one partition of `__transaction_state`. `transaction` has the rules for one transactional id.
"""
