"""What the Makefile calls: install, tests, notebooks, kernels/, README, the site, the wheel."""
