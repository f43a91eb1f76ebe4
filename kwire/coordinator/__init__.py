"""The group and transaction coordinators: state machines whose state is stored in internal topics.

A state machine turns a command into records and replies. `runtime` appends the records, applies them and sends the
replies.
"""
