"""A feed on this node: its values, who may write them, what it forgets and keeps out."""
