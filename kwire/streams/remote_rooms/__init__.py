"""Rooms of a bridge: one-partition topics on a cluster, and the settings that the cluster cannot store."""
