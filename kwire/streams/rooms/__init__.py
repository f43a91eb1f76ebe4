"""Rooms: topics of one partition that appear by themselves, hold a ring of events and go when nobody needs them."""
