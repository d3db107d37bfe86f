"""The server's side of the DHT node: what others ask of it, and what it stores for them."""
