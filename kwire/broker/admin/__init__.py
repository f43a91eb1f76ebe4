"""Administration: settings, log levels, feature levels, log directories, consumer lag, DeleteRecords."""
