"""What works on a store as a whole: snapshots, compaction, and checking every record."""
