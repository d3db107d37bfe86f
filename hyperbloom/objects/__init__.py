"""Object pools: PPPP 2 among nodes, durable here, and plain Python classes on top.

Without I/O: `wire` (frames, messages, one connection as a machine), `classes` (types and hashes),
`peers.parent_selection` (whom to dial). Twisted around them: `peers.protocol` (one connection),
`peers.network` (all of them), `service` (the node's part), `pool` (what happens to objects). Which
version of an object holds is decided in `hyperbloom.store.objects`. A program's instances are in
`hyperbloom.client.remote_pool`. Import from the modules.
"""

__all__: list[str] = []
