"""Entries of the audit log, and the bounded queue in which they wait to be written (by `kwire/streams/audit`)."""
