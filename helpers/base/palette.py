"""Colours and measures of every picture; Okabe and Ito's palette, told apart by everybody."""

# blue, orange, green, pink, sky blue, vermilion, yellow
COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"]

# No grey has contrast enough on a white page and on a dark one: a picture has a ground of its own.
PLATE = "#F5F5F2"
INK = "#333333"  # text and lines on it: contrast 11.6
ALARM = "#A63C00"  # vermilion, dark enough for text: 5.9

DPI = 100  # dots an inch as a page shows them: 8 points are 11 pixels
MARGIN = 0.14  # inches of plate around what is drawn
CORNER = 8  # pixels: the radius of the plate's corners
