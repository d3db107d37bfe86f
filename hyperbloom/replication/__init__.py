"""A feed among its peers: sync plans and replies, broadcast, and one Twisted Protocol around them.

`node.Node` owns the feeds and connections; `feed.Feed` the values' way to the disk and on;
`protocol.PeerProtocol` a connection; `peering.Peering` a secure one; `plan` and `reply` decide,
without I/O, what is asked and answered; `outflow` and `jobs` when it is sent. Nothing is imported
here, so that who needs only `settings` or `limits` does not load the rest.
"""
