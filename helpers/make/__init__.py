"""What the Makefile calls: install, run tests and notebooks, write kernels/, README, the site, the wheel."""
