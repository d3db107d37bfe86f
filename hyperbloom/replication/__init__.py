"""A feed among its peers: sync plans, replies, broadcast and the Twisted Protocol around them."""
