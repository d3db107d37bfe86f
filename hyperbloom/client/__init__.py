"""A program's way to a running node: over its control socket or its TCP port."""
