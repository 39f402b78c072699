"""Kernels whose counts are compared with those that Nsight Compute measured on a GPU."""
