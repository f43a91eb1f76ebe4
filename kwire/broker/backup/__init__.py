"""Snapshots of all logs and of the metadata store at one moment, for backups."""
