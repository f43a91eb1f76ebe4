"""Users: their SCRAM credentials in the metadata store, and the checks of passwords."""
