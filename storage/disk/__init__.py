"""Access to the operating system: files, syncs, journal files and preallocation."""
