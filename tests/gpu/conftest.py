"""Tests in this folder need a GPU and torch; elsewhere they are skipped, saying what is missing."""

import pytest

import cleave


@pytest.fixture(autouse=True)
def gpu() -> None:
    torch = pytest.importorskip("torch")
    if cleave.device_count() == 0:
        pytest.skip("needs an NVIDIA GPU, and cleave finds none")
    if not torch.cuda.is_available():
        pytest.skip("needs torch with CUDA; this one has been built without")
    torch.manual_seed(0)
