"""Records as text and files: format strings, lines, JSON lines, CSV and Parquet."""
