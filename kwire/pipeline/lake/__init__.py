"""Topics as tables: each record once, with columns from the topic's schemas, as Iceberg tables or as plain Parquet."""
