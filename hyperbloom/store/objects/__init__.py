"""The objects of the pool: which version holds, how versions are stored and told."""
