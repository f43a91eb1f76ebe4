"""Writes topics to Iceberg or plain Parquet tables, each record once. Columns are derived from the topic's schemas."""
