"""Connections of a node: listening, dialling, who is let in, and what each peer may use."""
