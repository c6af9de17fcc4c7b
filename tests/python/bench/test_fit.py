"""The planner's model against the pairs that it was fitted to."""

import re

import numpy as np
import pytest

from bench import fit, forest
from bench.measured_pairs import MEASURED
from cleave import _core
from cleave.testing.grouped_case import GroupedCase

# Mean regret of what ships, on the shapes of its fit: 0.01 to 0.03, and of its constants alone 0.02 to 0.05
# (docs/notes/2026-11-choice.md).
MOST_REGRET = 0.04
MOST_REGRET_ALONE = 0.08
MOST_REGRET_OF_LATER_ALONE = 0.12  # jobs whose pairs came after the constants: convolutions and groups


@pytest.fixture(scope="module")
def pairs() -> dict[int, fit.Pairs]:
    return fit.read(MEASURED)


def test_every_mainloop_is_measured(pairs) -> None:
    assert sorted(pairs) == list(range(len(fit.KINDS)))
    assert sum(len(of_kind.us) for of_kind in pairs.values()) > 30_000


def test_what_ships_chooses_well(pairs) -> None:
    for kind, of_kind in pairs.items():
        alone = of_kind.model.predict(fit.constants_of(of_kind, kind, np.ones(len(of_kind.us), bool), kept=True))
        for job, regrets in fit.regrets(of_kind, alone).items():
            later = job.startswith(("conv", "grouped"))
            assert np.mean(regrets) < (MOST_REGRET_OF_LATER_ALONE if later else MOST_REGRET_ALONE), job
        for job, regrets in fit.regrets(of_kind, of_kind.model.predict_shipped()).items():
            assert np.mean(regrets) < MOST_REGRET, job


def test_what_ships_is_what_a_fit_writes() -> None:
    shipped = {kind: np.array(_core.ProductModel.constants(kind)) for kind in range(fit.CONSTANTS)}
    assert (fit.FITTED / "constants.txt").read_text() == fit.constants_text(shipped)
    for kind in fit.KINDS:
        text = (fit.FITTED / f"trees_{kind}.txt").read_text()
        assert text == fit.forest_text(read_forest(text))


def read_forest(text: str) -> list[forest.Tree]:
    names = _core.ProductModel.feature_names()
    trees: list[forest.Tree] = []
    missing = 0  # nodes of the last tree
    for feature, value in re.findall(r"(?:(\w+)<=)?([-+.e\d]+),", text):
        if missing == 0:
            trees.append([])
            missing = 1
        trees[-1].append((names.index(feature) if feature else None, float(value)))
        missing += 1 if feature else -1
    assert missing == 0
    return trees


def test_trees_learn_what_is_left() -> None:
    """Trees in the form that the planner walks."""
    pytest.importorskip("lightgbm", reason="LightGBM grows the trees: pip install lightgbm")
    draw = np.random.default_rng(1)
    features = draw.normal(size=(2000, 4))
    target = np.where(features[:, 1] > 0.3, 0.2, -0.1) * (features[:, 2] < 0)
    grown = forest.evaluate(forest.grow(features, target, np.ones(2000)), features)
    assert np.abs(grown - target).mean() < 0.01


def test_other_constants_choose_otherwise(pairs) -> None:
    """The check above can fail."""
    of_kind = pairs[0]
    ones = [1.0] * len(_core.ProductModel.constant_names())
    assert np.mean(fit.regrets(of_kind, of_kind.model.predict(ones))["bf16 tn"]) > MOST_REGRET_ALONE


def test_a_fit_improves_on_its_start(pairs) -> None:
    pytest.importorskip("scipy", reason="scipy fits the model: pip install scipy")
    of_kind = pairs[2]
    start = [fit.START[name] for name in _core.ProductModel.constant_names()]
    found = fit.fit(of_kind, 2, np.ones(len(of_kind.us), bool), most_steps=3)
    before, after = (np.mean(fit.regrets(of_kind, of_kind.model.predict(list(c)))["fp8 rows"]) for c in (start, found))
    assert after < before
    strayed = np.abs(np.log(found / np.array(start)))
    assert np.all(strayed <= np.log(fit.STRAY) + 1e-9)


def test_what_was_measured_has_sizes_that_the_planner_does_not_know() -> None:
    """Eight tiles of rows take two waves, and seven one; the planner takes the mean of what is likely."""
    planned = GroupedCase(4, 643, 2880, 2880).plan("h100")
    kernel = "sm90 128x160"
    us, constants = [], _core.ProductModel.constants(0)
    for sizes in ((161, 161, 161, 160), (309, 154, 103, 77), ()):
        model = _core.ProductModel()
        assert model.add(planned, kernel, sizes) == fit.KINDS.index("grouped")
        us.append(model.predict(constants)[0])
    assert us[0] > 1.4 * us[1]
    likely = [model.predict(constants, i)[0] for i in range(_core.ProductModel.most_likely())]
    assert min(likely) == pytest.approx(us[1])
    assert max(likely) == pytest.approx(us[0])
    pairs = fit.Pairs(fit.KINDS.index("grouped"), model, [1.0])
    assert fit.as_planned(pairs, np.array(constants), [])[0] == pytest.approx(np.mean(likely))


def test_constants_are_counted() -> None:
    with pytest.raises(ValueError, match="constants has 2 values; the model has"):
        _core.ProductModel().predict([1.0, 2.0])
    with pytest.raises(ValueError, match="kind is 4, but 4 kinds of mainloop have constants"):
        _core.ProductModel.constants(fit.CONSTANTS)
