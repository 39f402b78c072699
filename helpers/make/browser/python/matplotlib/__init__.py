"""Stands in for matplotlib in the browser: what the pictures of a trace are drawn with, as SVG."""
