"""Kernels to compare: their counts with Nsight Compute's, planted faults with who finds them."""
