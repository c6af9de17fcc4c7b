"""cleave.gemm on the GPU: every mode, layout, dtype, epilogue and kernel, exactly."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from gemm_reference import ACTIVATIONS  # noqa: E402
from products import DTYPES, Product, integers  # noqa: E402
from served import is_hopper, skip_unless_served  # noqa: E402

import cleave  # noqa: E402

MODES = ("none", "serial", "parallel", "cluster", "stream_k", "auto")
LAYOUTS = ("tn", "tt", "nn", "nt")
KERNELS = ("sm90", "portable")

# Smaller than a tile, ragged in every direction, and several tiles.
SHAPES = ((8, 8, 64), (72, 136, 328), (200, 264, 1032), (384, 512, 512))


def split(mode: str, slices: int | None = 3) -> dict:
    return {"split_k_mode": mode, "split_k_slices": None if mode in ("none", "auto") else slices}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_modes_layouts_dtypes(kernel: str, mode: str, dtype: str, layout: str) -> None:
    skip_unless_served(kernel, mode, dtype, layout)
    for m, n, k in SHAPES:
        product = Product(m, n, k, dtype=dtype, layout=layout, options={"kernel": kernel, **split(mode)})
        product.run()
        product.check()


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("length", [65, 68, 130])
def test_lines_of_d_that_end_within_16_bytes(order: str, length: int) -> None:
    """Lines begin at multiples of 16 bytes, as TMA wants, but end between two."""
    m, n = (72, length) if order == "row" else (length, 72)
    a = torch.randint(-3, 4, (m, 64), device="cuda").half()
    b = torch.randint(-3, 4, (64, n), device="cuda").half()
    buffer = torch.full((80, 136), float("nan"), device="cuda").half()
    out = buffer[:72, :length] if order == "row" else buffer[:72, :length].mT
    cleave.gemm(a, b, out=out)
    assert torch.equal(out, (a.double() @ b.double()).half())
    assert buffer[:, length:].isnan().all() and buffer[72:].isnan().all()


def run_epilogue(kernel: str, mode: str, **epilogue) -> None:
    skip_unless_served(kernel, mode)
    product = Product(136, 200, 456, alpha=0.5, options={"kernel": kernel, **split(mode)}, **epilogue)
    product.run()
    product.check()


# Every two of an activation, a bias and a C together; every three are tests.fuzz's to draw.
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [None, "row", "column"])
def test_epilogues(kernel: str, activation: str, bias: str | None) -> None:
    shift = ACTIVATIONS.index(activation) + [None, "row", "column"].index(bias)
    c = [None, "float32", "D"][shift % 3]
    run_epilogue(kernel, "parallel", activation=activation, bias=bias, c=c, beta=-2.0 if c else None)


# The epilogue's code is the same in every mode: a few of them show that it is applied once.
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "epilogue",
    [
        {"bias": "row"},
        {"c": "D", "beta": -2.0},
        {"bias": "column", "c": "float16", "activation": "relu"},
        {"bias": "row", "activation": "gelu"},
    ],
    ids=str,
)
def test_epilogues_in_every_mode(kernel: str, mode: str, epilogue: dict) -> None:
    run_epilogue(kernel, mode, **epilogue)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("out_dtype", DTYPES)
@pytest.mark.parametrize("c", [None, *DTYPES])
def test_output_and_c_dtypes(kernel: str, out_dtype: str, c: str | None) -> None:
    skip_unless_served(kernel)
    shift = list(DTYPES).index(out_dtype) + [None, *DTYPES].index(c)
    for i, (dtype, bias_dtype) in enumerate(zip(DTYPES, reversed(DTYPES), strict=True)):
        mode = ("none", "parallel")[(shift + i) % 2]  # each with every two of the types
        product = Product(
            136,
            72,
            200,
            dtype=dtype,
            out_dtype=out_dtype,
            c=c,
            bias="row",
            bias_dtype=bias_dtype,
            options={"kernel": kernel, **split(mode)},
        )
        product.run()
        product.check()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_slice_counts(kernel: str, mode: str) -> None:
    skip_unless_served(kernel, mode)
    if mode in ("none", "auto"):
        pytest.skip("has no slice count of its own")
    for slices in (1, 2, 4, 5, 8, 13, 16, *(() if mode == "cluster" else (37, 128))):
        product = Product(136, 72, 8200, options={"kernel": kernel, **split(mode, slices)})
        product.run()
        product.check()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("batch", [0, 1, 2, 5])
def test_batches(kernel: str, mode: str, batch: int) -> None:
    skip_unless_served(kernel, mode)
    for layout in LAYOUTS:
        product = Product(
            72, 136, 328, batch=batch, layout=layout, c="D", bias="column",
            options={"kernel": kernel, **split(mode)},
        )  # fmt: skip
        product.run()
        product.check()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
def test_broadcast_operands(kernel: str, mode: str) -> None:
    skip_unless_served(kernel, mode)
    for shared in ("a", "b", "c"):
        product = Product(72, 136, 328, batch=3, c="float32", options={"kernel": kernel, **split(mode)})
        if shared == "a":
            product.a = product.a[1]
        elif shared == "b":
            product.b = product.b[1:2]
        else:
            product.c_values = product.c_values[2]
        product.expected = product._expected()
        product.run()
        product.check()


@pytest.mark.parametrize("mode", MODES)
def test_random_shapes(mode: str) -> None:
    """Through `auto`: what TMA cannot address, such as odd strides, goes to the portable kernel."""
    skip_unless_served("auto", mode)
    draw = random.Random(f"shapes of {mode}")
    for _ in range(25):
        k = draw.choice([draw.randint(1, 40), draw.randint(1, 3000)])
        product = Product(
            m=draw.choice([1, draw.randint(1, 40), draw.randint(1, 700)]),
            n=draw.choice([1, draw.randint(1, 40), draw.randint(1, 700)]),
            k=k,
            batch=draw.choice([None, None, 1, 3]),
            dtype=draw.choice(list(DTYPES)),
            out_dtype=draw.choice([None, *DTYPES]),
            layout=draw.choice(LAYOUTS),
            padding=draw.choice([0, 1, 3, 8, 16]),
            c=draw.choice([None, None, "D", *DTYPES]),
            bias=draw.choice([None, "row", "column"]),
            bias_dtype=draw.choice(list(DTYPES)),
            activation=draw.choice(["none", "relu"]),
            options=split(mode, draw.randint(1, min(k, 16))),
        )
        product.run()
        product.check()


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_row_and_one_column(kernel: str) -> None:
    skip_unless_served(kernel)
    for m, n in ((1, 256), (256, 1), (1, 1)):
        # A vector across the contiguous dimension has lines of one element, which TMA cannot load.
        for layout in LAYOUTS if kernel == "portable" else ("tn",):
            for mode in ("none", "parallel"):
                product = Product(m, n, 1024, layout=layout, options={"kernel": kernel, **split(mode)})
                product.run()
                product.check()


@pytest.mark.parametrize("offset", [1, 2, 3, 4, 5, 7])
def test_misaligned_pointers(offset: int) -> None:
    for dtype in DTYPES.values():
        m, n, k = 70, 90, 130
        a = torch.empty(m * k + 8, dtype=dtype, device="cuda")[offset:][: m * k].view(m, k)
        b = torch.empty(n * k + 8, dtype=dtype, device="cuda")[offset:][: n * k].view(n, k).mT
        out = torch.empty(m * n + 8, dtype=dtype, device="cuda")[offset:][: m * n].view(m, n)
        a.copy_(torch.randint(-3, 4, (m, k)))
        b.copy_(torch.randint(-3, 4, (k, n)))
        cleave.gemm(a, b, out=out)
        assert torch.equal(out, (a.double() @ b.double()).to(dtype))


def test_no_k_gives_beta_c() -> None:
    for mode in MODES:
        a, b = torch.empty(40, 0, device="cuda"), torch.empty(0, 24, device="cuda")
        c = torch.ones(40, 24, device="cuda")
        assert (cleave.gemm(a, b, c=c, beta=3.0, split_k_mode=mode) == 3.0).all()
        assert (cleave.gemm(a, b, split_k_mode=mode) == 0.0).all()


def test_empty_results() -> None:
    for m, n, k in ((0, 8, 8), (8, 0, 8), (0, 0, 0)):
        a, b = torch.empty(m, k, device="cuda"), torch.empty(k, n, device="cuda")
        assert cleave.gemm(a, b).shape == (m, n)


@pytest.mark.parametrize("mode", MODES)
def test_beta_zero_does_not_read_c(mode: str) -> None:
    skip_unless_served("auto", mode)
    product = Product(136, 72, 512, c="float32", beta=0.0, options=split(mode))
    product.c_values.fill_(float("nan"))
    product.run()
    product.check()


@pytest.mark.parametrize("mode", MODES)
def test_nan_and_infinity_reach_their_elements_only(mode: str) -> None:
    skip_unless_served("auto", mode)
    product = Product(136, 72, 512, activation="relu", options=split(mode))
    product.a[5, 300] = float("nan")
    product.run()
    assert product.out[5].isnan().all()
    assert not product.out[:5].isnan().any() and not product.out[6:].isnan().any()


def test_column_major_output() -> None:
    for mode in ("none", "parallel"):
        a, b = (integers(shape, torch.bfloat16) for shape in ((136, 328), (328, 72)))
        c = integers((136, 72), torch.float32, column_major=True)
        out = torch.empty(72, 136, device="cuda").mT
        cleave.gemm(a, b, c=c, out=out, **split(mode))
        assert torch.equal(out, (a.double() @ b.double() + c.double()).float())


def test_more_than_2_31_elements() -> None:
    """The last rows of A and of D lie past element 2^31 (5 GB each)."""
    free, _ = torch.cuda.mem_get_info()
    if free < 11e9:
        pytest.skip("needs 11 GB of free GPU memory")
    m, k, n = 2**21 + 100, 1032, 1032
    b = torch.eye(k, n, dtype=torch.bfloat16, device="cuda")
    for kernel in KERNELS if is_hopper() else ("portable",):
        a = torch.zeros(m, k, dtype=torch.bfloat16, device="cuda")
        a[-128:] = torch.randint(-3, 4, (128, k))
        out = torch.full((m, n), float("nan"), dtype=torch.bfloat16, device="cuda")
        cleave.gemm(a, b, out=out, kernel=kernel)
        assert torch.equal(out[-128:], a[-128:])
        assert (out[:128] == 0).all()
        assert out.count_nonzero() == a.count_nonzero()
        del a, out
