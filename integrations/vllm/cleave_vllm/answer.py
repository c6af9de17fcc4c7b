"""What vLLM asks of kernels: whether they serve something, and if not, why."""

Answer = tuple[bool, str | None]

YES: Answer = (True, None)
