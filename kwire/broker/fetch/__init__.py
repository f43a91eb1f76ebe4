"""Fetching: fetch sessions, long polls for new records, and reads that wait for the disk."""
