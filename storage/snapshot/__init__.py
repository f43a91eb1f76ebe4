"""Hard links to the files of logs as they are at one moment, for backups."""
