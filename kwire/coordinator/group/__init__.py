"""The group coordinator: who is in a consumer group, what each member was assigned, and how far the group has come.

`coordinator.py` is the door. `commands.py` are the questions and answers that pass it; `shard.py` is the state of one
partition of `__consumer_offsets`; `classic.py` and `joining.py` are the classic rebalance protocol, `members.py` its
members and their vote, `subscriptions.py` the topics they want; `offsets.py` are the committed offsets, `chores.py`
sees to it that they go when their time is over; `kinds.py` says what groups of every protocol have in common;
`consumer/` are the groups of the consumer protocol and `topics_view.py` what these see of topics; `migration.py` moves
groups between the two protocols, by way of `succession.py`, and `embedded.py` reads what classic consumers tell each
other; `records.py` is what all of it looks like on disk, in Kafka's own record formats.
"""
