"""torch.ops.cleave: the C++ operators, loaded by this import, and what torch is told of them in Python."""

from . import library

library.load()

from . import (  # noqa: E402
    autocast,
    autograd,
    conv_autograd,
    conv_fake,
    epilogue_autograd,
    fake,
    grouped_autograd,
    moe_autograd,
)


def register() -> None:
    """Registers fakes, gradients and autocast rules with torch.library."""
    for part in (
        autocast,
        fake,
        conv_fake,
        autograd,
        epilogue_autograd,
        conv_autograd,
        grouped_autograd,
        moe_autograd,
    ):
        part.register()
