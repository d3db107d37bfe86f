"""A feed among its peers. Each folder knows only those before it.

`reading`: what is read of a feed for others. `broadcast`: new values on their way to all peers.
`feed`: its values, who may write them, what it forgets. `schedule`: when a peer is asked what, as
decisions alone. `sync`: one secure peer, what it is asked, told and sent. `net`: connections, who
is let in, who is dialled. `node.Node` owns them all. Nothing is imported here, so that a program
that needs only `settings` or `limits` does not load the rest.
"""
