"""What the terminal can show."""

import sys


def let_print() -> None:
    """Let print show ? for what the terminal's character set lacks, where it would raise."""
    if getattr(sys.stdout, "errors", "") == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
