"""Object pools: PPPP 2 among nodes, durable here, and plain Python classes on top.

Without I/O: `codec` and its parts, `hashes`, `session` (one connection), `parents` (whom to
dial). Twisted around them: `peer` (one connection), `network` (all of them), `service` (the node's
part). A program sees `types` and `pool`; which version of an object holds is decided in
`hyperbloom.store.objects.rule`. Import from the modules.
"""

__all__: list[str] = []
