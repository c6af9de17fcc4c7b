"""The planner's model against the pairs that it was fitted to."""

import numpy as np
import pytest

from bench import fit
from cleave import _core

# Mean regret of the constants that ship, on the shapes of their fit: 0.02 to 0.06 (docs/notes/cost-model.md).
MOST_REGRET = 0.08


@pytest.fixture(scope="module")
def pairs() -> dict[int, fit.Pairs]:
    return fit.read(fit.MEASURED)


def test_every_mainloop_is_measured(pairs) -> None:
    assert sorted(pairs) == list(range(len(fit.KINDS)))
    assert sum(len(of_kind.us) for of_kind in pairs.values()) > 30_000


def test_the_shipped_constants_choose_well(pairs) -> None:
    for kind, of_kind in pairs.items():
        predicted = of_kind.model.predict(_core.ProductModel.constants(kind))
        for job, regrets in fit.regrets(of_kind, predicted).items():
            assert np.mean(regrets) < MOST_REGRET, job


def test_other_constants_choose_otherwise(pairs) -> None:
    """The check above can fail."""
    of_kind = pairs[0]
    ones = [1.0] * len(_core.ProductModel.constant_names())
    assert np.mean(fit.regrets(of_kind, of_kind.model.predict(ones))["bf16 tn"]) > MOST_REGRET


def test_a_fit_improves_on_its_start(pairs) -> None:
    pytest.importorskip("scipy", reason="scipy fits the model: pip install scipy")
    of_kind = pairs[2]
    start = [fit.START[name] for name in _core.ProductModel.constant_names()]
    found = fit.fit(of_kind, np.ones(len(of_kind.us), bool), most_steps=3)
    before, after = (np.mean(fit.regrets(of_kind, of_kind.model.predict(list(c)))["fp8 rows"]) for c in (start, found))
    assert after < before
    strayed = np.abs(np.log(found / np.array(start)))
    assert np.all(strayed <= np.log(fit.STRAY) + 1e-9)


def test_constants_are_counted() -> None:
    with pytest.raises(ValueError, match="constants has 2 values; the model has"):
        _core.ProductModel(fit.H200_GB_PER_S).predict([1.0, 2.0])
