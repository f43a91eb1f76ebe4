"""Answers of the HTTP port: errors, events as JSON, and large answers that are sent in parts."""
