"""A feed on this node: its values, who may write them, what it forgets, whom it has for peers."""
