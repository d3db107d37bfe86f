"""New values on their way to a feed's peers: one stream for all, a tree for those that speak it."""
