"""A node of the Mainline DHT without I/O: messages, routing table, lookups, storage.

`machine.Dht` joins the parts. Nothing here knows a clock, a socket, Twisted or randomness of its
own; the node that others use is `hyperbloom.discovery.dht_node.DhtNode`.
"""
