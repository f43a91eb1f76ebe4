"""What happens in rooms, counted while it happens: windows, active users, top rooms, sessions.

Records of rooms come in; results leave as events in a room of their own, where a page may watch them, and as rows of
tables. A result is told once, when its window is closed: when the watermark, which follows the newest event at a
distance, has passed the window's end. Events that come later than that are left out and counted as late.
"""
