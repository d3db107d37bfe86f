"""LMDB as the store uses it: the environment and its file, locks, record layout, transactions."""
