"""The tables that an export writes: their schema, rows, files and commits."""
