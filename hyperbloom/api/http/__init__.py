"""HTTP for the API: the server, one request, who may use it, streams, its description."""
