"""Work that must not block the event loop: cooperative chunks, worker processes, and threads for the disk."""
