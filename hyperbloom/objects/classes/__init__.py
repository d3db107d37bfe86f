"""Classes of persisted objects: their types, declarations, and the hashes they are known by."""
