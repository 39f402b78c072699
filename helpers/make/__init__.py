"""What the Makefile calls: install, run tests and notebooks, write kernels/, README and the site."""
