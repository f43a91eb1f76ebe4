"""A segment store: replicas of segments, fenced by epochs, and the copying of sealed segments."""
