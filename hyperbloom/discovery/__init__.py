"""Finding a feed's peers: a node of the Mainline DHT, and the topic tracker's records on it."""
