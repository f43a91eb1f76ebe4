"""One segment file: appending, reading, indexes and scans."""
