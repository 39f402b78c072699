"""Print what of the notebooks is solved, and what comes next: `make progress`."""

from helpers.exercises import show_progress

if __name__ == "__main__":
    print(show_progress())
