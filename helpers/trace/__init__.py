"""What a launch did, line by line: what is slow about it, and what would fit on a GPU."""

from helpers.trace.occupancy import occupancy

__all__ = ["occupancy"]
