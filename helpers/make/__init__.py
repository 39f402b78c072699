"""What the Makefile calls: install, run the tests and the notebooks, write kernels/, README, the site."""
