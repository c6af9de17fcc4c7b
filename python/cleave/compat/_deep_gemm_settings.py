"""DeepGEMM's settings of its kernels: remembered, so that they can be read, but Cleave plans by itself."""

from __future__ import annotations

_num_sms: int | None = None
_tc_util = 100
_pdl = False


def set_num_sms(new_num_sms: int) -> None:
    """Changes what get_num_sms returns; products go on using all of the GPU."""
    global _num_sms
    _num_sms = new_num_sms


def get_num_sms() -> int:
    """What was set, or how many multiprocessors torch's current GPU has."""
    if _num_sms is not None:
        return _num_sms
    import torch

    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


def set_tc_util(new_tc_util: int) -> None:
    """Changes what get_tc_util returns."""
    global _tc_util
    _tc_util = new_tc_util


def get_tc_util() -> int:
    """What was set, or 100."""
    return _tc_util


def set_pdl(new_enable_pdl: bool) -> None:
    """Changes what get_pdl returns; launches that follow another use it where that is right, whatever is set."""
    global _pdl
    _pdl = new_enable_pdl


def get_pdl() -> bool:
    """What was set, or False."""
    return _pdl


def set_ignore_compile_dims(new_value: bool) -> None:
    """Nothing: one kernel serves all sizes."""


def set_block_size_multiple_of(new_value: int | tuple[int, int]) -> None:
    """Nothing: tiles are chosen by the planner."""
