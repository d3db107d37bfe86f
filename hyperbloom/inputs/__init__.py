"""What others publish, read into values of a feed: formats of sources, and the sources themselves.

Each format is a small function from bytes in slices to values in slices. A process of its own
fetches a source, reads it, and finds what differs from what was read before.
"""
