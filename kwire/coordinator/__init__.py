"""Coordinators: state that lives in internal topics and is shared by many clients.

Enters: commands (plain values) from the handlers. Leaves: records for an internal topic, and answers.
One way through: a state machine decides (state, command, moment) -> (records, replies); the runtime appends the
records, applies them to the state, and releases the replies once the records are committed. What must survive a
restart changes only when a record is applied, so a restart is nothing but a replay.
"""
