"""Events: records as rooms, topics over HTTP and their readers see them; how they get into a partition and out."""
