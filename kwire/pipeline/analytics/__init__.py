"""Streaming analytics of rooms: event counts, active users, top rooms, sessions.

A result is published once, when the watermark has passed the end of its window. Events of this window that arrive later
are dropped, and their number is reported.
"""
