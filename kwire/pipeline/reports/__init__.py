"""Reports of jobs to the room `kwire.jobs`. The console shows them, and every reader of the room may."""
