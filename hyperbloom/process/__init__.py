"""The process around the node: its supervisor, its log, its file descriptors, its last words."""
