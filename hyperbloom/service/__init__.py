"""A configuration becomes a running node, is read anew while it runs, and joins its parts."""
