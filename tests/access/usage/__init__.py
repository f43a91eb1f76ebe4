"""The use of limits of keys: counts of events and subscription slots."""
