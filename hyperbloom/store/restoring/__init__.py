"""A store from a snapshot: of the same node again (restore), or to begin with (seed)."""
