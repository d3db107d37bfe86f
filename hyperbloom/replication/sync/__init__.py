"""One secure peer of a feed: what it is asked and answered, when, and whether it is in sync."""
