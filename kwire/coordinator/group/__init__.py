"""The group coordinator: who is in a consumer group, what each member was assigned, and how far the group has come.

`coordinator.py` is the door. `commands.py` are the questions and answers that pass it; `shard.py` is the state of one
partition of `__consumer_offsets`; `classic.py` and `joining.py` are the classic rebalance protocol, `members.py` its
members and their vote; `offsets.py` are the committed offsets; `records.py` is what all of it looks like on disk,
in Kafka's own record formats.
"""
