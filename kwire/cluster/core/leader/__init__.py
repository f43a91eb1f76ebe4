"""The leader of a stream: elections, replication of its log, and recovery of segments that earlier leaders left."""
