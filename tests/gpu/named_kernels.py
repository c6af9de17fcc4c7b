"""Products by a kernel that is named, whatever the planner would choose."""

from __future__ import annotations

from products import Product

import cleave
from cleave import _core


def run(product: Product, kernel: str) -> None:
    given = {"bias": product.bias_values, "c": product.c_values, "out": product.out}
    given |= {"scale_a": product.scale_a, "scale_b": product.scale_b} if product.scaling else {}
    ask = cleave.plan_scaled_gemm if product.scaling else cleave.plan_gemm
    planned = ask(product.a, product.b, activation=product.activation, **given, **product.options)
    plan = _core.plan_as(planned, kernel)
    assert plan.kernel_name == kernel
    plan.run(product.a, product.b, alpha=product.alpha, beta=product.beta, **given)


def check(product: Product, kernel: str) -> None:
    run(product, kernel)
    product.check()
