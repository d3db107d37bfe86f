"""Object pools: PPPP 2 among nodes, durable here, and plain Python classes on top.

`codec`, `hashes` and `session` are without I/O; `protocol` and `service` are Twisted around them;
`types` is what a program sees. Import from the modules.
"""

__all__: list[str] = []
