"""What a kernel's warps did, in Nsight Compute's terms, without a GPU."""
