"""Background maintenance of logs: retention, compaction, scrubbing, relocation and the removal of files."""
