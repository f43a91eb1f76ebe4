"""Pages of docs/ that are written by the code they describe: one module per page, run with `scripts/generate`."""
