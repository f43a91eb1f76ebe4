"""Log compaction: keeps the newest record of each key."""
