"""Colours of every picture, told apart by everybody: Okabe and Ito's palette."""

# blue, orange, green, pink, sky blue, vermilion, yellow
COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"]

# text and lines that stand on the page itself: contrast 4.5 on white, 4.2 on JupyterLab's #111
INK = "#767676"
