"""Control of a running node over a Unix socket: HTTP and JSON under `/v1`, and its client.

`node` says what the API needs of a node, `routes` is the list of what can be asked, the modules
beside it answer, `server` carries it all over the socket. `client` is synchronous and needs nothing
but the standard library; importing it does not load Twisted.
"""

__all__: list[str] = []
