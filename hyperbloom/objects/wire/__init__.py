"""PPPP 2 as bytes, without I/O: payloads, frames, and one connection as a machine."""
