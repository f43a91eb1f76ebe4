"""Members of consumer groups as small programs, one per client, for tests that must be able to kill one.

All of them, and `compat/java/GroupMember.java`, speak one language. Their arguments are a topic and the settings of a
consumer in Kafka's names, `name=value`. They process what they are given and commit it, one batch after the other, and
tell on standard output, a line each, what happened:

    assigned 0 1 2        these partitions were added to what the member owns
    revoked 0 1           these were taken from it
    processed 0 17 18     these offsets of partition 0 were processed
    committed 0 19        the server acknowledged this commit of partition 0
    refused <why>         a commit or a poll failed; whoever owns the partition next tries again

A line on standard input, or its end, asks the member to leave its group and to end.
"""
