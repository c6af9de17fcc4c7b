"""`stream=` that is not the current one, as far as that needs no GPU: what frameworks are told."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cleave  # noqa: E402
from cleave import _arrays  # noqa: E402

CURRENT, SIDE = 0, 1234


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What happens, in order, on torch streams that are their handles."""
    events: list[Any] = []

    @contextmanager
    def entered(stream: Any) -> Any:
        events.append(("enter", stream))
        yield
        events.append(("leave", stream))

    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: (handle, device))
    monkeypatch.setattr(torch.cuda, "stream", entered)
    monkeypatch.setattr(_arrays, "pointer_device", lambda pointer: 0)
    return events


def test_new_arrays_are_memory_of_the_stream(told: list[Any]) -> None:
    made = _arrays.adapter_for(torch.Tensor).on_stream(
        SIDE, 1, lambda *arguments: told.append(arguments) or "array", "like", (2, 3), "float16"
    )
    assert made == "array"
    side = (SIDE, 1)
    assert told == [("enter", side), ("like", (2, 3), "float16"), ("leave", side)]


@pytest.mark.skipif(cleave.device_count() > 0, reason="this machine has a GPU, see tests/gpu")
@pytest.mark.parametrize(("stream", "times"), [(SIDE, 2), (CURRENT, 0), (None, 0)])
def test_arrays_that_the_stream_reads_are_kept_for_it(told: list[Any], stream: int | None, times: int) -> None:
    class Claims:
        """A tensor of torch's on a GPU, to whoever does not look closely."""

        __module__ = "torch.cuda"

        def __init__(self) -> None:
            self.__cuda_array_interface__ = {
                "data": (4096, False), "shape": (16, 16), "typestr": "<f2", "version": 3,
            }  # fmt: skip

        def record_stream(self, stream: Any) -> None:
            told.append(stream)

    with pytest.raises(cleave.CudaError):  # there is no GPU, which is found out later
        cleave.gemm(Claims(), Claims(), stream=stream)
    assert told == [(SIDE, 0)] * times
