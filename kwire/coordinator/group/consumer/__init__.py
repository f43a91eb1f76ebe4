"""Groups of the consumer protocol (KIP-848): the coordinator itself computes who reads what.

A member only sends heartbeats. Three numbers carry everything: the group epoch moves when members, subscriptions or
topics change; the target assignment is computed for a group epoch and bears it; a member's epoch says how far it has
come towards the target. `heartbeat.py` decides on a heartbeat and `leaving.py` on a farewell; `group.py` is the state
and its deadlines, `members.py` a member, `reconciliation.py` the way of a member from what it has to what it shall
have, `target.py` what everybody shall have. `classic_members.py` serves those that still speak the classic protocol.
`regexes.py` finds the topics of an expression and `patterns.py` is the language of expressions. `records.py` is all of
it on disk, in Kafka's own formats, and `commands.py` what is asked.
"""
