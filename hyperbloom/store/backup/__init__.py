"""Copies of a store: snapshots, restoring, compaction, and checking every record."""
