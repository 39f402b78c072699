"""The colours of what a launch did, by their names."""

from helpers.base.palette import COLORS

BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW = COLORS
PALE = "#FBE3B5"  # orange, on which black hatches and numbers are easy to see
