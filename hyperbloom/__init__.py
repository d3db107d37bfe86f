"""hyperbloom keeps sets of records the same among people who trust each other."""

__all__ = ["__version__"]

__version__ = "0.1.0"
