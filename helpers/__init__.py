"""What the notebooks share. Three audiences, three places:

What a notebook imports
    checks      check_close, check_grad, expect_error: raise with the first wrong element
    code        show_cuda, show_twins, show_change: CUDA strings in colour, beside their Python
                twins, or what changed since another string
    compiler    compile_cuda: a CUDA string to Python functions; ptx, sass, kernel_output
    device      DEVICE and BACKEND: a GPU, or the CPU backend
    doctor      what is missing on this machine, and the line that mends it
    exercises   exercise: the gate of an exercise
    mnist       load_mnist: handwritten digits
    network     a model of several GPUs that send to each other: bytes, steps, time
    play        things to play with: move a control, and the picture answers
    plots       one function per picture
    processes   Team: several processes by torchrun, which run a notebook's functions
    profiling   profile_table, chrome_trace, ncu_report, sanitize
    recorded    what was measured on a GPU, for machines without one
    simulator   launch: Python kernels, thread by thread, with CUDA's names
    streams     a model of a GPU's streams: what overlaps, and what nothing orders
    timing      time_cuda, compare: CUDA events, medians
    trace       trace: what a kernel's lines ask of the memory; occupancy

What `make` runs
    make        install, tests, notebooks, kernels, readme and its picture; make/site: the website;
                make/wheel: the CPU backend for other projects
    tests       the tests of all this; tests/proof compares it with an H200

Machinery
    cuda_on_cpu CUDA strings on a machine without a GPU; imports nothing of helpers
    base        the machine, facts of GPUs, tables, words, pictures; imports nothing of the others
"""
