"""Stands in for the device in the browser: no GPU, no CUDA strings."""

BACKEND = DEVICE = "cpu"
