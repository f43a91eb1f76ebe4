"""The pipeline: pure parts without Spark, the rest in real Spark against a real server."""
