"""The API of a running node: HTTP and JSON under `/v1`, over a Unix socket and a loopback port.

From below: `limits`, `problems`, `schemas` (the shapes of bodies and answers) and `served` (what
the API needs of a node); `monitoring` counts, `http` carries a request to its endpoint and checks
its body, `endpoints` answer, `routes` is the table of them, and `service` puts all of it to work.
Programs ask a node with `hyperbloom.client`.
"""

__all__: list[str] = []
