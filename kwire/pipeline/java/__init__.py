"""The Java process that Spark needs: whether Java is installed, and what the process prints."""
