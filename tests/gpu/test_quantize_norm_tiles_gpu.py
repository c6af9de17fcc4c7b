"""cleave.quantize with a norm in squares of 128, with transposes, groups and smoothing, on the GPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from test_quantize_norm_gpu import NORMS, values  # noqa: E402

import cleave  # noqa: E402

OUTPUTS = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)
SHAPES = ((1, 1, 0), (300, 128, 16), (257, 130, 3), (129, 2050, 0), (130, 4096, 0), (140, 20000, 0), (64, 7168, 0))
FORMS: dict[str, dict[str, Any]] = {
    "squares": {"granularity": "block_128x128"},
    "turned squares": {"granularity": "block_128x128", "transpose": True},
    "turned lines": {"granularity": "block_1x128", "transpose": True},
    "groups": {"granularity": "block_1x128", "transpose": True, "offs": True},
    "rows": {"granularity": "row"},
    "lines": {"granularity": "block_1x128"},
    "tensor": {"granularity": "tensor"},
}


def options_of(form: str, rows: int, cols: int, smooth: bool) -> dict[str, Any]:
    options = dict(FORMS[form])
    if options.get("offs"):
        options["offs"] = torch.tensor([rows // 3, rows // 3, rows - rows // 5], dtype=torch.int32, device="cuda")
    if smooth:
        options["smooth"] = 2.0 ** torch.randint(-3, 4, (cols,), device="cuda").float() * 1.5
    return options


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", NORMS)
def test_is_the_norm_quantised(kind: str, form: str, smooth: bool) -> None:
    """Bit by bit what `quantize` makes of the norm in float32, which is as float64 has it; in place, too."""
    torch.manual_seed(0)
    for i, (rows, cols, padding) in enumerate(SHAPES):
        x, residual = values(rows, cols, torch.float32, padding), values(rows, cols, torch.float32)
        norm = NORMS[kind](torch.randn(cols, device="cuda"))
        options, dtype = options_of(form, rows, cols, smooth), OUTPUTS[i % 3]
        options["use_ue8m0"] = i % 2 == 1
        y = torch.full_like(x, float("nan"))
        *made, sums, also = cleave.quantize(x, dtype, norm=norm, residual=residual, normed_out=y, **options)
        assert also is y and torch.equal(sums, x + residual)
        h = sums.double()
        h = h - h.mean(1, keepdim=True) if kind == "layer_norm" else h
        exact = h * torch.rsqrt((h * h).mean(1, keepdim=True) + norm.eps) * norm.weight.double()
        torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=1e-4 * exact.abs().max().item())
        expected = cleave.quantize(y, dtype, **options)
        assert len(made) == len(expected) and all(map(equal, made, expected))
        *again, sums, also = cleave.quantize(
            x, dtype, norm=norm, residual=residual, residual_out=residual, normed_out=x, **options
        )
        assert sums is residual and also is x and torch.equal(x, y) and all(map(equal, again, expected))


@pytest.mark.parametrize("form", [form for form in FORMS if "transpose" in FORMS[form]])
@pytest.mark.parametrize("source", [torch.float16, torch.bfloat16], ids=str)
def test_16_bits(source: torch.dtype, form: str) -> None:
    """Rows are those that are made without a transpose; the transpose has what float64 has, up to a step."""
    torch.manual_seed(1)
    for rows, cols, padding in SHAPES:
        x, residual = values(rows, cols, source, padding), values(rows, cols, source)
        norm = cleave.rms_norm(torch.randn(cols, device="cuda").to(source))
        options = options_of(form, rows, cols, False)
        q, scale, q_t, scale_t, *_, sums = cleave.quantize(x, "int8", norm=norm, residual=residual, **options)
        lines = {"granularity": options["granularity"]}
        without = cleave.quantize(x, "int8", norm=norm, residual=residual, **lines)
        assert all(map(equal, (q, scale, sums), without))
        h = sums.double()
        y = h * torch.rsqrt((h * h).mean(1, keepdim=True) + norm.eps) * norm.weight.double()
        turned = cleave.quantize(y.float(), "int8", **options)[2:4]
        torch.testing.assert_close(scale_t, turned[1], rtol=4e-6, atol=0)
        differ = (q_t.int() - turned[0].int()).abs()
        assert differ.max() <= 1 and (differ > 0).double().mean() < 0.01 + 2 / differ.numel()


def test_graphs() -> None:
    """The workspace of the statistics is the pool's; every replay finds them anew."""
    x, norm = values(300, 1024, torch.bfloat16), cleave.rms_norm(torch.randn(1024, device="cuda").bfloat16())
    options = {"granularity": "block_1x128", "transpose": True, "norm": norm}
    expected = cleave.quantize(x, "int8", **options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = cleave.quantize(x, "int8", **options)
    for _ in range(3):
        for one in made:
            one.view(torch.uint8).fill_(0x55)
        graph.replay()
        assert all(map(equal, made, expected))
