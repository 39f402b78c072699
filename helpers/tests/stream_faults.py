"""Host code with one fault each in the order of its streams' work, and how it is mended.

As in order_faults.py: `fix:` says what a line should be, the error names the lines marked `fault`.
x and y are the device's, 1,024 floats each, from cudaMalloc; h and k are the host's, pinned;
own is the host's own memory.
"""

HEADER = """
__global__ void add_kernel(const float* from, float* to, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i] + by;
}
"""

# name: (what is said, body)
FAULTS = {
    "kernel_after_a_copy": (
        r"reads byte 0 of an array from cudaMalloc of 4096 bytes, which cudaMemcpyAsync",
        """
    cudaMemcpyAsync(x, h, 4096, cudaMemcpyHostToDevice, a);  // fault
    // fix: cudaEventRecord(e, a), cudaStreamWaitEvent(b, e);
    add_kernel<<<4, 256, 0, b>>>(x, y, 1024, 1);  // fault
""",
    ),
    "copy_after_a_kernel": (
        r"cudaMemcpyAsync in line \d+ reads byte 0 of .*, which add_kernel .* writes in another",
        """
    cudaMemset(x, 0, 4096);
    add_kernel<<<4, 256, 0, a>>>(x, y, 1024, 1);  // fault
    // fix: cudaStreamSynchronize(a);
    cudaMemcpyAsync(h, y, 4096, cudaMemcpyDeviceToHost, b);  // fault
""",
    ),
    "two_kernels": (
        r"(reads|writes) byte 0 of .*, which add_kernel .* (writes|reads) in another stream",
        """
    cudaMemset(x, 0, 4096);
    add_kernel<<<4, 256, 0, a>>>(x, y, 1024, 1);  // fault
    // fix: cudaEventRecord(e, a), cudaStreamWaitEvent(b, e);
    add_kernel<<<4, 256, 0, b>>>(y, x, 1024, 1);  // fault
""",
    ),
    "event_recorded_too_early": (
        r"(reads|writes) byte 0 of .*, which add_kernel .* (writes|reads) in another stream",
        """
    cudaMemset(x, 0, 4096);
    if (n) cudaEventRecord(e, a);
    add_kernel<<<4, 256, 0, a>>>(x, y, 1024, 1);  // fault
    // fix: cudaEventRecord(e, a);
    cudaStreamWaitEvent(b, e);
    add_kernel<<<4, 256, 0, b>>>(y, x, 1024, 1);  // fault
""",
    ),
    "waits_in_the_wrong_stream": (
        r"(reads|writes) byte 0 of .*, which add_kernel .* (writes|reads) in another stream",
        """
    cudaMemset(x, 0, 4096);
    add_kernel<<<4, 256, 0, a>>>(x, y, 1024, 1);  // fault
    cudaEventRecord(e, a);
    cudaStreamWaitEvent(a, e);  // fix: cudaStreamWaitEvent(b, e);
    add_kernel<<<4, 256, 0, b>>>(y, x, 1024, 1);  // fault
""",
    ),
    "buffer_filled_again": (
        r"cudaMemcpyAsync in line \d+ writes byte 0 of .*, which add_kernel .* reads in another",
        """
    cudaMemcpy(x, h, 4096, cudaMemcpyHostToDevice);
    add_kernel<<<4, 256, 0, a>>>(x, y, 1024, 1);  // fault
    // fix: cudaEventRecord(e, a), cudaStreamWaitEvent(b, e);
    cudaMemcpyAsync(x, k, 4096, cudaMemcpyHostToDevice, b);  // fault
""",
    ),
    "freed_while_it_is_used": (
        r"cudaFreeAsync in line \d+ frees byte 0 of .*, which add_kernel .* writes in another",
        """
    float* mine;
    cudaMallocAsync(&mine, 4096, a);
    cudaMemsetAsync(x, 0, 4096, a);
    add_kernel<<<4, 256, 0, a>>>(x, mine, 1024, 1);  // fault
    // fix: cudaEventRecord(e, a), cudaStreamWaitEvent(b, e);
    cudaFreeAsync(mine, b);  // fault
""",
    ),
    "what_a_free_does_not_order": (
        r"(reads|writes) byte 0 of .*, which add_kernel .* (writes|reads) in another stream",
        """
    float* mine;
    cudaMallocAsync(&mine, 4096, a);
    cudaMemset(x, 0, 4096);
    add_kernel<<<4, 256, 0, a>>>(x, y, 1024, 1);  // fault
    cudaFreeAsync(mine, a);
    // fix: cudaEventRecord(e, a), cudaStreamWaitEvent(b, e);
    add_kernel<<<4, 256, 0, b>>>(y, x, 1024, 1);  // fault
""",
    ),
    "one_element_shared": (
        r"writes byte 2048 of .*, which add_kernel .* writes in another stream",
        """
    cudaMemset(x, 0, 4096);
    const int half = 513;  // fix: const int half = 512;
    add_kernel<<<4, 256, 0, a>>>(x, y, half, 1);  // fault
    add_kernel<<<4, 256, 0, b>>>(x + 512, y + 512, 512, 1);  // fault
""",
    ),
    "default_stream_and_non_blocking": (
        r"(reads|writes) byte 0 of .*, which add_kernel .* (writes|reads) in another stream",
        """
    cudaMemset(x, 0, 4096);
    cudaDeviceSynchronize();
    add_kernel<<<4, 256, 0, free>>>(x, y, 1024, 1);  // fault
    // fix: cudaStreamSynchronize(free);
    add_kernel<<<4, 256>>>(y, x, 1024, 1);  // fault
""",
    ),
    "memset_under_a_kernel": (
        r"add_kernel .* writes byte 0 of .*, which cudaMemsetAsync in line \d+ writes in another",
        """
    cudaMemset(x, 0, 4096);
    cudaMemsetAsync(y, 0, 4096, a);  // fault
    // fix: cudaDeviceSynchronize();
    add_kernel<<<4, 256, 0, b>>>(x, y, 1024, 1);  // fault
""",
    ),
    "host_reads_too_early": (
        r"the host reads byte 12 of an array from cudaMallocHost .* in line \d+, which cuda",
        """
    cudaMemset(x, 0, 4096);
    cudaMemcpyAsync(h, x, 4096, cudaMemcpyDeviceToHost, a);  // fault
    // fix: cudaStreamSynchronize(a);
    own[0] = h[3];  // fault
""",
    ),
    "host_waits_for_another_stream": (
        r"the host reads byte 0 of .*, which cudaMemcpyAsync in line \d+ writes",
        """
    cudaMemset(x, 0, 4096);
    cudaMemcpyAsync(h, x, 4096, cudaMemcpyDeviceToHost, a);  // fault
    cudaStreamSynchronize(b);  // fix: cudaStreamSynchronize(a);
    own[0] = h[0];  // fault
""",
    ),
    "host_fills_the_source": (
        r"the host writes byte 20 of .*, which cudaMemcpyAsync in line \d+ reads",
        """
    cudaMemcpyAsync(x, h, 4096, cudaMemcpyHostToDevice, a);  // fault
    // fix: cudaStreamSynchronize(a);
    h[5] = 3;  // fault
""",
    ),
    "host_reads_managed_memory": (
        r"the host reads byte 4 of an array from cudaMallocManaged .*, which add_kernel .* writes",
        """
    cudaMemset(x, 0, 4096);
    add_kernel<<<4, 256>>>(x, m, 1024, 1);  // fault
    // fix: cudaDeviceSynchronize();
    own[0] = m[1];  // fault
""",
    ),
    "callback_of_another_stream": (
        r"the host reads byte 0 of .*, which cudaMemcpyAsync in line \d+ writes",
        """
    cudaMemset(x, 0, 4096);
    cudaMemcpyAsync(h, x, 4096, cudaMemcpyDeviceToHost, a);  // fault
    // fix: cudaEventRecord(e, a), cudaStreamWaitEvent(b, e);
    cudaLaunchHostFunc(b, [](void* at) { *static_cast<float*>(at) += 1; }, h);  // fault
""",
    ),
    "rows_copied_under_a_kernel": (
        r"cudaMemcpy2D in line \d+ reads byte \d+ of .*, which add_kernel .* writes",
        """
    cudaMemset(x, 0, 4096);
    add_kernel<<<4, 256, 0, a>>>(x, y, 1024, 1);  // fault
    // fix: cudaStreamSynchronize(a);
    cudaMemcpy2DAsync(h, 64, y, 128, 64, 32, cudaMemcpyDeviceToHost, free);  // fault
""",
    ),
    "loop_of_two_buffers": (
        r"cudaMemcpyAsync in line \d+ writes byte 0 of .*, which add_kernel .* reads in another",
        """
    cudaEvent_t done[2];
    cudaEventCreate(&done[0]), cudaEventCreate(&done[1]);
    float* buffer[2] = {x, y};
    for (int i = 0; i < 4; i++) {
        // fix: cudaStreamWaitEvent(a, done[i % 2]);
        cudaMemcpyAsync(buffer[i % 2], h, 4096, cudaMemcpyHostToDevice, a);  // fault
        cudaEventRecord(e, a);
        cudaStreamWaitEvent(b, e);
        add_kernel<<<4, 256, 0, b>>>(buffer[i % 2], m, 1024, 1);  // fault
        cudaEventRecord(done[i % 2], b);
    }
""",
    ),
}

RIGHT = {
    "halves_in_two_streams": """
    for (int i = 0; i < 2; i++) {
        cudaStream_t s = i ? a : b;
        cudaMemcpyAsync(x + 512 * i, h + 512 * i, 2048, cudaMemcpyHostToDevice, s);
        add_kernel<<<2, 256, 0, s>>>(x + 512 * i, y + 512 * i, 512, 1);
        cudaMemcpyAsync(k + 512 * i, y + 512 * i, 2048, cudaMemcpyDeviceToHost, s);
    }
    cudaDeviceSynchronize();
    own[0] = k[1023];
""",
    "both_read": """
    cudaMemset(x, 0, 4096);
    add_kernel<<<4, 256, 0, a>>>(x, y, 1024, 1);
    cudaMemcpyAsync(h, x, 4096, cudaMemcpyDeviceToHost, b);
""",
    "default_stream_waits_for_blocking_ones": """
    cudaMemset(x, 0, 4096);
    add_kernel<<<4, 256, 0, a>>>(x, y, 1024, 1);
    add_kernel<<<4, 256>>>(y, x, 1024, 1);
    add_kernel<<<4, 256, 0, b>>>(x, y, 1024, 1);
""",
    "chain_of_events": """
    cudaMemsetAsync(x, 0, 4096, a);
    cudaEventRecord(e, a);
    cudaStreamWaitEvent(b, e);
    cudaEventRecord(e, b);
    cudaStreamWaitEvent(free, e);
    add_kernel<<<4, 256, 0, free>>>(x, y, 1024, 1);
    cudaEventRecord(e, free);
    cudaEventSynchronize(e);
    cudaMemcpyAsync(h, y, 4096, cudaMemcpyDeviceToHost, a);
    cudaStreamSynchronize(a);
    own[0] = h[0];
""",
    "own_memory_is_waited_for": """
    cudaMemsetAsync(x, 0, 4096, a);
    cudaMemcpyAsync(own, x, 64, cudaMemcpyDeviceToHost, a);
    own[1] = own[0];
    cudaMemcpyAsync(x, own, 64, cudaMemcpyHostToDevice, a);
    own[0] = 5;
""",
    "query_says_it_is_done": """
    cudaMemsetAsync(x, 0, 4096, a);
    cudaMemcpyAsync(h, x, 4096, cudaMemcpyDeviceToHost, a);
    while (cudaStreamQuery(a) != cudaSuccess) {}
    own[0] = h[0];
""",
}
