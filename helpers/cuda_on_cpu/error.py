"""The error of the translator."""


class TranslateError(Exception):
    """What a CUDA string asks for that cannot be done: `line` (from 1) and `message`."""

    def __init__(self, line: int, message: str):
        super().__init__(f"line {line}: {message}")
        self.line = line
        self.message = message
