"""Consumer groups over HTTP: members that read by requests or by a stream, and reports with the lag of all groups."""
