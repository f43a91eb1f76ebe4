"""The transaction coordinator: which producer may write for a transactional id, and how each of its transactions ends.

`coordinator.py` is the door. `commands.py` are the questions and answers that pass it; `shard.py` is the state of one
partition of `__transaction_state`; `transaction.py` are the rules for one transactional id, `states.py` where it can
stand, `producers.py` which producer ids and epochs follow one another; `markers.py` is what partitions are told when a
transaction ends; `rounds.py` looks regularly for transactions and ids whose time is over; `records.py` is what all of
it looks like on disk, in Kafka's own record format.
"""
