"""Convolutions on the GPU: every direction, kernel, mode and geometry against float64."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from conv_cases import CASES, DTYPES, KERNELS, KINDS, SQUARE, Case, channels_last, split  # noqa: E402
from conv_reference import Axis, Convolution  # noqa: E402
from served import skip_unless_served  # noqa: E402

import cleave  # noqa: E402

MODES = ("none", "serial", "parallel", "cluster", "stream_k", "auto")


def served(name: str, kind: str, dtype: str = "float16") -> bool:
    """By the Hopper kernel; the portable one serves everything."""
    convolution = CASES[name]
    if kind == "dgrad" and name == "many classes":
        return False
    if kind == "dgrad" and "patches" in name:
        return dtype != "float32" and name != "patches of 14"  # whose filters are no whole 16 bytes
    pixel_bytes = convolution.channels // convolution.groups * (4 if dtype == "float32" else 2)
    if pixel_bytes % 16:
        by_threads = kind == "fprop" or (kind == "wgrad" and convolution.groups == 1)
        return by_threads and dtype != "float32" and len(convolution.axes) == 2
    return kind == "fprop" or dtype != "float32"


def check(name: str, kind: str, kernel: str, dtype: str = "float16", **facts: Any) -> None:
    """Runs it, or sees it refused if it is not the kernel's."""
    skip_unless_served(kernel)
    case = Case(kind, CASES[name], dtype, **facts)
    case.extra["kernel"] = kernel
    if kernel == "portable" or served(name, kind, dtype):
        case.check()
    else:
        with pytest.raises(ValueError, match="cannot serve this convolution"):
            case.run()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_geometries(name: str, kind: str, kernel: str) -> None:
    for dtype in DTYPES:
        check(name, kind, kernel, dtype)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_planners_choice(name: str, kind: str) -> None:
    for dtype in DTYPES:
        Case(kind, CASES[name], dtype, out_dtype="float32").check()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["3x3 stride 2", "1x1", "1x1 stride 2", "uneven", "few channels"])
def test_split_k(name: str, kind: str, mode: str, kernel: str) -> None:
    skip_unless_served(kernel, mode)
    check(name, kind, kernel, options=split(mode))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", ["none", "serial", "parallel"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["3x3 stride 2", "1x1", "stride above filter", "few channels", "groups"])
def test_epilogues(name: str, kind: str, mode: str, kernel: str) -> None:
    other = {} if kind == "wgrad" else {"has_bias": True, "activation": "relu"}
    check(name, kind, kernel, "bfloat16", options=split(mode), has_c=True, **other)


@pytest.mark.parametrize("tile", ["128x96", "128x144", "128x160", "128x176", "128x224"])
@pytest.mark.parametrize("rest", ["", " multicast 2x1", " multicast 1x2", " stream_k 1", " parallel 3"])
def test_columns_that_end_within_a_strip_of_filters(tile: str, rest: str) -> None:
    """Data gradients of channels that a tile of strips of 64 would have to round up, and of others."""
    skip_unless_served("sm90")
    for channels in (96, 168, 232):
        for axes in (SQUARE, (Axis(14, 3, 1, 1, 1), Axis(9, 3, 1, 1, 1))):
            Case("dgrad", Convolution(2, channels, 136, axes)).check_kernel(f"sm90 {tile}{rest}")


@pytest.mark.parametrize("division", ["fast", "plain", "fast_load", "fast_store"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
def test_divisions_agree_bitwise(kind: str, kernel: str, division: str) -> None:
    case = Case(kind, CASES["uneven"])
    tensors = case.tensors
    a, b = {
        "fprop": (tensors["input"], tensors["weight"]),
        "dgrad": (tensors["output"], tensors["weight"]),
        "wgrad": (tensors["output"], tensors["input"]),
    }[kind]
    size = {} if kind == "fprop" else {"size": tuple(case.out.shape)}
    made = []
    for way in ("auto", division):
        plan = cleave.plan_conv2d(
            kind, a, b, out=case.out, kernel=kernel, division=way, **size,
            **case.convolution.geometry,
        )  # fmt: skip
        case.out.fill_(float("nan"))
        made.append(plan.run(a, b, out=case.out).clone())
    assert torch.equal(*made)


def test_a_dgrad_chooses_its_division() -> None:
    case = Case("dgrad", CASES["uneven"])
    made = [case.run(division=way).clone() for way in ("auto", "plain")]
    assert torch.equal(*made)


@pytest.mark.parametrize("kernel", KERNELS)
def test_int8(kernel: str) -> None:
    convolution = CASES["3x3 stride 2"]
    shapes = convolution.shapes
    x, w = (
        torch.randint(-9, 10, shapes[name], device="cuda", dtype=torch.int8).contiguous(
            memory_format=torch.channels_last
        )
        for name in ("input", "weight")
    )
    y = cleave.conv2d(x, w, stride=2, padding=1, out_dtype="int32", kernel=kernel)
    want = torch.nn.functional.conv2d(x.double(), w.double(), stride=2, padding=1)
    assert torch.equal(y.double(), want)


@pytest.mark.parametrize("seed", range(6))
def test_random_geometries(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(20):
        along = []
        for _ in range(draw.choice([1, 2, 2, 2, 3])):
            size, taps = draw.choice([1, 5, 8, 13]), draw.choice([1, 2, 3, 3, 5])
            dilation, before = draw.choice([1, 1, 2, 3]), draw.choice([0, 1, taps // 2, taps])
            missing = max(0, dilation * (taps - 1) + 1 - size - before)
            along.append(Axis(size, taps, draw.choice([1, 2, 3, 4]), before, missing, dilation))
        groups = draw.choice([1, 1, 1, 2])
        channels, filters = (draw.choice([1, 8, 24, 64, 72]) * groups for _ in range(2))
        convolution = Convolution(draw.choice([1, 3]), channels, filters, tuple(along), groups)
        mode = draw.choice(["auto", "auto", "serial", "parallel"])
        dtype = draw.choice(DTYPES)
        Case(draw.choice(KINDS), convolution, dtype, options={"split_k_mode": mode}).check()


def test_channel_slices_are_taken_as_they_are() -> None:
    wide = channels_last(2, 192, 28, 28, dtype="float16")
    x, w = wide[:, 64:128], channels_last(128, 64, 3, 3, dtype="float16")
    out_wide = torch.full((2, 14, 14, 256), float("nan"), device="cuda").half().movedim(-1, 1)
    y = cleave.conv2d(x, w, stride=2, padding=1, out=out_wide[:, 128:])
    want = torch.nn.functional.conv2d(x.double(), w.double(), stride=2, padding=1)
    torch.testing.assert_close(y.double(), want, rtol=1e-3, atol=1e-2)
    assert out_wide[:, :128].isnan().all()


def test_a_graph_follows_its_inputs_on_a_side_stream() -> None:
    case = Case("dgrad", CASES["3x3 stride 2"])
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        case.run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        case.run()
    for _ in range(3):
        case.tensors["output"].normal_()
        case.out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        first = case.out.clone()
        error = (first.double() - case.want()).abs().max().item()
        assert error <= 2e-3 * max(case.want().abs().max().item(), 1.0)
    for _ in range(200):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(case.out, first)


def test_an_out_whose_rows_are_unevenly_spaced_is_filled_in_a_graph() -> None:
    x, w = (channels_last(*shape, dtype="float16") for shape in ((2, 64, 28, 28), (128, 64, 3, 3)))
    memory = torch.full((2, 15, 17, 128), 7.0, device="cuda", dtype=torch.float16)
    out = memory[:, :14, 1:15].permute(0, 3, 1, 2)

    def run() -> None:
        result = cleave.conv2d(x, w, stride=2, padding=1, out=out, convert=True)
        assert result is out

    with pytest.raises(ValueError, match=r"out is .* convert=True"):
        cleave.conv2d(x, w, stride=2, padding=1, out=out)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run()
    for _ in range(3):
        x.normal_()
        out.zero_()
        graph.replay()
        assert torch.equal(out, cleave.conv2d(x, w, stride=2, padding=1))
    out.fill_(7)
    assert (memory == 7).all()


def test_tensors_past_2_to_31_elements() -> None:
    if torch.cuda.mem_get_info()[0] < 30 * 2**30:
        pytest.skip("needs 30 GiB of free GPU memory")
    images, size, channels = 34, 1024, 64  # 2.28e9 elements
    x = torch.empty(images, size, size, channels, device="cuda", dtype=torch.float16)
    x.normal_()
    w = channels_last(64, channels, 1, 1, dtype="float16")
    y = cleave.conv2d(x.movedim(-1, 1), w, stride=2)
    dx = cleave.conv2d_dgrad((images, channels, size, size), w, y, stride=2)
    for image in (0, images - 1):
        part = x[image : image + 1].movedim(-1, 1).double()
        want = torch.nn.functional.conv2d(part, w.double(), stride=2)
        torch.testing.assert_close(y[image : image + 1].double(), want, rtol=2e-3, atol=2e-2)
        back = torch.nn.grad.conv2d_input(part.shape, w.double(), y[image : image + 1].double(), stride=2)
        got = dx[image : image + 1].double()
        torch.testing.assert_close(got, back, rtol=2e-3, atol=5e-2)
