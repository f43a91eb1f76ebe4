"""Repair of sealed segments: copies to new stores, and the removal of members that have failed or drain."""
