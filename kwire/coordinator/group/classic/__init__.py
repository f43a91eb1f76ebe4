"""Classic groups: members send JoinGroup, the leader computes the assignment, and members get it by SyncGroup."""
