"""Events as files, one each, for people who want to look at them with ordinary tools; the log stays the truth."""
