"""What the notebooks share: simulator, compiler, checks, timing, profiling, plots, data."""
