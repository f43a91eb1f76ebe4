"""The schemas of event topics: which schemas are valid, how they may change, and how events are checked."""
