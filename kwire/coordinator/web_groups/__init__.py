"""Consumer groups for HTTP members: create a group, join it, read the assigned partitions, commit, leave.

Kafka consumers and HTTP members may be in the same group. Kafka's tools show the members and offsets of both. Only a
group for HTTP members has a definition. The definition names the one topic that the group reads, so HTTP members do not
subscribe to topics. `local` uses the coordinator of this server; `streams.remote_groups` uses that of a cluster.
"""
