"""The topics of this node: their catalogue, live topic objects, and the checks of the data directories at start."""
