"""Where tables are: a folder of this machine, or one of an object store."""
