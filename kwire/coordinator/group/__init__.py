"""The group coordinator: members of consumer groups, their assignments and committed offsets.

`classic` and `consumer` are the two group protocols. A `shard` is the state of one partition of `__consumer_offsets`.
"""
