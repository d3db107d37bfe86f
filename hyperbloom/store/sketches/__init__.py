"""Sketches of sets of values: what is kept of them, what is added up in memory, ids to values."""
