"""The Spark data source `hyperbloom`: a snapshot's values to ask, and a node's to follow.

`data_source` is what Spark knows of. `snapshot_reader` answers one query from one snapshot.
`stream_reader` follows nodes: what it stands at is in `offsets`, and what it reads comes from
snapshots (`snapshot_arrivals`) or from a running node (`node_arrivals`), which are the same to it
(`arrivals`).
"""
