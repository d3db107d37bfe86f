"""What answers each path of the API, and the table of all paths."""
