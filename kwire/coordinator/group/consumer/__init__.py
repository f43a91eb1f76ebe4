"""Consumer groups (KIP-848): members only send heartbeats, and the coordinator computes the assignment.

The group epoch is increased when members, subscriptions or topics change. The target assignment is computed for a group
epoch. A member's epoch is the epoch of the target assignment to which the member was last reconciled.
"""
