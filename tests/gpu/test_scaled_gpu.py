"""cleave.scaled_gemm on the GPU: every scaling, dtype, layout, mode, output and kernel, exactly."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from products import DTYPES, DTYPES_8BIT, Product  # noqa: E402
from scaled_products import BLOCK_SCALINGS, E4M3, KINDS, PAIRS, SCALINGS, make  # noqa: E402
from served import skip_unless_served  # noqa: E402
from test_gemm_gpu import KERNELS, LAYOUTS, MODES, split  # noqa: E402

import cleave  # noqa: E402

# Smaller than a tile, ragged in every direction (K is no multiple of 32 or 128), several tiles.
SHAPES = ((8, 16, 128), (72, 136, 336), (200, 264, 1040), (384, 512, 512))


def run(*args, **given) -> None:
    product = make(*args, **given)
    product.run()
    product.check()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
def test_scalings_and_dtypes(kernel: str, pair: tuple[str, str], scaling: tuple | None) -> None:
    """With K contiguous, and the portable kernel with each other layout for a third of them."""
    layouts = ["tn"]
    if kernel == "portable":
        others = [layout for layout in LAYOUTS if layout != "tn"]
        layouts.append(others[(PAIRS.index(pair) + SCALINGS.index(scaling)) % 3])
    for layout in layouts:
        skip_unless_served(kernel, dtype=pair[0], layout=layout)
        for shape in SHAPES:
            for major in ("mn", "k"):
                run(
                    *shape, kernel, dtype=pair[0], b_dtype=pair[1], scaling=scaling,
                    scale_major=major, layout=layout,
                )  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_modes(kernel: str, mode: str, kind: dict) -> None:
    skip_unless_served(kernel, mode, kind["dtype"])
    for shape in SHAPES:
        run(*shape, kernel, mode, **kind)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", ["serial", "parallel", "cluster", "stream_k"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_slice_counts(kernel: str, mode: str, kind: dict) -> None:
    """Slices that end within a block of 128 among them."""
    skip_unless_served(kernel, mode, kind["dtype"])
    for slices in (1, 2, 3, 5, 8, 13, *(() if mode == "cluster" else (37,))):
        options = {"split_k_mode": mode, "split_k_slices": slices, **kind.get("options", {})}
        run(136, 72, 8208, kernel, **kind | {"options": options})


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("azp", ["tensor", "row"])
def test_zero_points(kernel: str, mode: str, azp: str) -> None:
    skip_unless_served(kernel, mode, "int8")
    for scaling in (None, ("row", "row")):
        run(136, 200, 464, kernel, mode, dtype="int8", scaling=scaling, azp=azp, bias="row")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_int8_gives_exact_int32(kernel: str, mode: str, layout: str) -> None:
    """Over the whole range of int8, to sums far beyond float32's 24 bits."""
    skip_unless_served(kernel, mode, "int8", layout)
    product = make(136, 200, 70000, kernel, mode, dtype="int8", out_dtype="int32", layout=layout)
    product.a.random_(-128, 128)
    product.b.random_(64, 128)
    product.a[3] = product.a[3].abs().clamp(100, 127)
    product.expected = product._expected()
    assert product.expected.max() > 2**28
    product.run()
    product.check()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("out_dtype", ["int32", *DTYPES_8BIT])
def test_c_of_the_type_of_d(kernel: str, mode: str, out_dtype: str) -> None:
    dtype = "int8" if out_dtype == "int32" else E4M3
    skip_unless_served(kernel, mode, dtype)
    for c in ("D", out_dtype):
        for alpha, beta in ((1.0, None), (3.0, -2.0), (2.0, 0.0)):
            run(
                136, 200, 336, kernel, mode, dtype=dtype, out_dtype=out_dtype, c=c,
                alpha=alpha if dtype == "int8" else alpha / 32, beta=beta,
            )  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
def test_int32_is_added_exactly(kernel: str) -> None:
    """Sums and C have more than the 24 bits of a float32."""
    skip_unless_served(kernel, "none", "int8")
    product = make(136, 200, 70000, kernel, dtype="int8", out_dtype="int32", c="D")
    product.a.fill_(101)
    product.b.fill_(127)
    product.out.random_(2**24, 2**30)
    product.expected = product._expected()
    product.run()
    product.check()


@pytest.mark.parametrize("dtype", ["int8", E4M3])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_the_sum_of_nothing_is_zero_whatever_its_scales(dtype: str, value: float) -> None:
    a = torch.zeros(32, 0, device="cuda").to(DTYPES_8BIT[dtype])
    b = torch.zeros(48, 0, device="cuda").to(DTYPES_8BIT[dtype]).mT
    one = torch.full((), value, device="cuda")
    rows, columns = one.expand(32, 1).contiguous(), one.expand(1, 48).contiguous()
    c, bias = torch.randn(32, 48, device="cuda"), torch.randn(48, device="cuda")
    for scale_a, scale_b in ((one, one), (rows, columns)):
        d = cleave.scaled_gemm(a, b, scale_a, scale_b, out_dtype="float32")
        assert torch.equal(d, torch.zeros_like(d))
        d = cleave.scaled_gemm(a, b, scale_a, scale_b, c=c, bias=bias, out_dtype="float32")
        assert torch.equal(d, c + bias)
    d = cleave.gemm(a.bfloat16(), b.bfloat16(), alpha=value)
    assert torch.equal(d, torch.zeros_like(d))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("blocks", [False, True])
def test_empty_groups_of_k_take_no_scale(kernel: str, mode: str, blocks: bool) -> None:
    """Nor do slices without a k block, which lie behind their group."""
    skip_unless_served(kernel, mode, E4M3)
    m, n, sizes = 136, 72, [0, 128, 0, 512, 0]  # the last empty one lies behind all scales
    total, count = sum(sizes), len(sizes)
    offs = torch.tensor(sizes, device="cuda").cumsum(0).to(torch.int32)
    a, b = (torch.randint(-3, 4, (x, total), device="cuda").float() for x in (m, n))
    scales = [torch.ones(count, m, device="cuda"), torch.ones(count, n, device="cuda")]
    options = {"alignment": 128}
    if blocks:
        scales = [torch.ones(x, total // 128, device="cuda") for x in (m, n)]
        scales[1] = scales[1].mT
        scales[0][:, 1:] = float("inf")  # of the group of 512: that of 128 has one block
    else:
        for g, size in enumerate(sizes):
            if size == 0:
                scales[0][g], scales[1][g] = float("inf"), float("nan")
    if mode not in ("none", "auto", "stream_k"):
        options["split_k_slices"] = 3
    d = cleave.grouped_gemm(
        a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).mT, offs, scale_a=scales[0],
        scale_b=scales[1], out_dtype="float32", kernel=kernel, split_k_mode=mode, **options,
    )  # fmt: skip
    for g, size in enumerate(sizes):
        if size == 0:
            assert (d[g] == 0).all()
    assert torch.equal(d[1], a[:, :128] @ b[:, :128].T)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", ["none", "parallel"])
@pytest.mark.parametrize("out_dtype", [*DTYPES, *DTYPES_8BIT])
@pytest.mark.parametrize("dtype", ["int8", E4M3])
def test_outputs(kernel: str, mode: str, out_dtype: str, dtype: str) -> None:
    skip_unless_served(kernel, mode, dtype)
    scale_d = 4.0 if out_dtype in DTYPES_8BIT else None
    for scaling in (("row", "row"), ("1x128", "128x128")) if dtype == E4M3 else (("row", "row"),):
        for shape in ((136, 72, 336), (128, 256, 256)):
            common = {"dtype": dtype, "out_dtype": out_dtype, "scaling": scaling}
            run(*shape, kernel, mode, **common)
            run(
                *shape, kernel, mode, **common, scale_d=scale_d, amax=True, alpha=0.5, bias="row",
                bias_dtype="bfloat16", c="float32", beta=-2.0, activation="relu",
            )  # fmt: skip


EPILOGUES = (
    {"bias": "row", "bias_dtype": "bfloat16"},
    {"bias": "column", "c": "float16", "activation": "relu"},
    {"c": "D", "beta": -2.0},
    {"bias": "row", "activation": "gelu"},
    {"amax": True},
    {"out_dtype": E4M3, "scale_d": 2.0, "amax": True},
)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
def test_epilogues_in_every_mode(kernel: str, mode: str, epilogue: dict) -> None:
    """Each of both types with every mode, and with every epilogue."""
    dtype = ("int8", E4M3)[(MODES.index(mode) + EPILOGUES.index(epilogue)) % 2]
    skip_unless_served(kernel, mode, dtype)
    run(136, 200, 464, kernel, mode, dtype=dtype, scaling=("row", "row"), alpha=0.5, **epilogue)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scale_batch", [False, True])
def test_batches(kernel: str, mode: str, scale_batch: bool) -> None:
    for kind in KINDS:
        skip_unless_served(kernel, mode, kind["dtype"])
        kind = {**kind, "azp": None if scale_batch else kind.get("azp")}
        for batch in (0, 1, 3):
            run(72, 136, 336, kernel, mode, batch=batch, scale_batch=scale_batch, **kind)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_few_rows(mode: str, kind: dict) -> None:
    """Where A and B may change places."""
    skip_unless_served("auto", mode, kind["dtype"])
    for m in (1, 2, 7, 16, 33, 64):
        run(m, 576, 2064, mode=mode, **kind)
        run(576, m, 2064, mode=mode, **kind)


def draw_product(draw: random.Random, mode: str) -> Product:
    dtype, b_dtype = draw.choice(PAIRS)
    scaling = draw.choice(SCALINGS)
    blocks = scaling in BLOCK_SCALINGS
    k = draw.choice([draw.randint(1, 40), draw.randint(1, 3000)])
    out_dtype = draw.choice([*DTYPES, *DTYPES_8BIT])
    batch = draw.choice([None, None, 1, 3])
    return make(
        draw.choice([1, draw.randint(1, 40), draw.randint(1, 700)]),
        draw.choice([1, draw.randint(1, 40), draw.randint(1, 700)]),
        k,
        mode=mode,
        batch=batch,
        dtype=dtype,
        b_dtype=b_dtype,
        out_dtype=out_dtype,
        layout=draw.choice(["tn", *LAYOUTS]),
        padding=draw.choice([0, 1, 3, 8, 16]),
        c=draw.choice([None, None, *DTYPES]),
        bias=draw.choice([None, "row", "column"]),
        activation=draw.choice(["none", "relu"]),
        scaling=scaling,
        scale_major=draw.choice(["mn", "k"]),
        scale_batch=batch is not None and draw.random() < 0.5,
        azp=draw.choice([None, "tensor", "row"]) if dtype == "int8" and not blocks else None,
        scale_d=draw.choice([None, 0.5, 8.0]) if out_dtype in DTYPES_8BIT else None,
        amax=draw.random() < 0.3,
        options={
            "use_fast_accum": dtype != "int8" and draw.random() < 0.3,
            **split(mode, draw.randint(1, min(k, 16))),
        },
    )


@pytest.mark.parametrize("mode", MODES)
def test_random_products(mode: str) -> None:
    """Through `auto`: what TMA cannot address, such as odd strides, goes to the portable kernel."""
    skip_unless_served("auto", mode, E4M3)
    draw = random.Random(f"scaled products of {mode}")
    for _ in range(20):
        product = draw_product(draw, mode)
        product.run()
        product.check()


@pytest.mark.parametrize("dtype", DTYPES_8BIT)
@pytest.mark.parametrize("offset", [1, 2, 3, 4, 8, 12])
def test_misaligned_pointers(dtype: str, offset: int) -> None:
    skip_unless_served("auto", dtype=dtype)
    m, n, k = 70, 90, 144

    def cut(rows: int, cols: int) -> torch.Tensor:
        buffer = torch.zeros(rows * cols + 16, dtype=torch.int8, device="cuda").view(DTYPES_8BIT[dtype])
        return buffer[offset:][: rows * cols].view(rows, cols)

    a, b, out = cut(m, k), cut(n, k), cut(m, n)
    for x in (a, b):
        x.copy_(torch.randint(-3, 4, x.shape).float())
    expected = a.double() @ b.double().mT
    quarter = torch.full((1,), 0.25, device="cuda")
    cleave.scaled_gemm(a, b.mT, quarter, quarter, out=out, scale_d=quarter)
    assert (out.double() - expected / 4).abs().max() <= 8  # a rounding of at most 252 to e5m2
    wide = cleave.scaled_gemm(a, b.mT, quarter, quarter, out_dtype="float32")
    assert torch.equal(wide.double(), expected / 16)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["int8", E4M3])
def test_nans_and_zeros_among_the_scales(mode: str, dtype: str) -> None:
    skip_unless_served("auto", mode, dtype)
    scalings = [("row", "row")] if dtype == "int8" else [("row", "row"), ("1x128", "128x128")]
    for scaling in scalings:
        product = make(136, 72, 512, mode=mode, dtype=dtype, scaling=scaling)
        product.scale_a[5, -1] = float("nan")
        product.scale_a[9] = 0
        product.run()
        assert product.out[5].isnan().all()
        assert (product.out[9] == 0).all()
        assert product.out.isnan().sum() == 72


def test_no_k_gives_the_epilogue() -> None:
    for dtype in DTYPES_8BIT.values():
        a = torch.empty(40, 0, device="cuda", dtype=dtype)
        b = torch.empty(0, 24, device="cuda", dtype=dtype)
        bias, amax = torch.full((24,), 3.0, device="cuda"), torch.zeros(1, device="cuda")
        for mode in MODES:
            for scale in (torch.ones((), device="cuda"), None):
                d = cleave.scaled_gemm(a, b, scale, scale, bias=bias, amax=amax, out_dtype="float32", split_k_mode=mode)
                assert (d == 3.0).all() and amax.item() == 3.0


def test_empty_results() -> None:
    one = torch.ones(1, device="cuda")
    for m, n, k in ((0, 8, 16), (8, 0, 16), (0, 0, 0)):
        a, b = (torch.empty(s, dtype=torch.int8, device="cuda") for s in ((m, k), (k, n)))
        assert cleave.scaled_gemm(a, b, one, one).shape == (m, n)


def test_tensors_of_the_host() -> None:
    product = make(72, 136, 336, dtype="int8", scaling=("row", "row"), azp="row")
    for name in ("scale_a", "scale_b", "azp", "azp_adj"):
        arguments = product.arguments() | product.scaled_arguments()
        arguments[name] = arguments[name].cpu()
        with pytest.raises(ValueError, match=f"a is on cuda:0, {name} on cpu"):
            cleave.scaled_gemm(product.a, product.b, **arguments)


@pytest.mark.parametrize("dtype", DTYPES_8BIT)
def test_outputs_with_a_scale_per_row(dtype: str) -> None:
    """Eagerly, and in a graph that follows its inputs."""
    skip_unless_served("auto", dtype=E4M3)
    product = make(136, 200, 464, dtype=E4M3, scaling=("row", "row"), bias="row")

    def multiply() -> tuple[torch.Tensor, torch.Tensor]:
        return cleave.scaled_gemm(
            product.a, product.b, product.scale_a, product.scale_b, bias=product.bias_values,
            out_dtype=dtype, out_scale="row",
        )  # fmt: skip

    q, scale = multiply()
    assert q.dtype == DTYPES_8BIT[dtype] and scale.shape == (136, 1)
    if dtype == "int8":
        largest, step = 127, 1.0
    else:
        limits = torch.finfo(q.dtype)
        largest, step = limits.max, limits.eps * (product.expected / scale).abs() + limits.tiny
    torch.testing.assert_close(
        scale.double() * largest, product.expected.abs().amax(1, keepdim=True), rtol=2**-8, atol=0
    )
    # Half a step, and a little for the rounding in between.
    assert ((q.double() - product.expected / scale).abs() <= 0.6 * step).all()

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        multiply()
    with torch.cuda.graph(graph, stream=stream):
        captured = multiply()
    product.a.copy_(torch.randint(-3, 4, product.a.shape, device="cuda").float())
    graph.replay()
    for seen, expected in zip(captured, multiply(), strict=True):
        assert torch.equal(seen.view(torch.uint8), expected.view(torch.uint8))
