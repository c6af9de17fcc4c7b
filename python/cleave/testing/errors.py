"""How the command, the benchmark and the examples say that they cannot go on."""


class ToolError(Exception):
    """One line for the user: what is wrong and the remedy. The process exits with status 1."""


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
