"""Names of release 1."""
