# Two commands matter: `make run` and `make test`. Both set up what is missing, build what has changed, and go on.

BUILD := build
PYTHON := .venv/bin/python
ARGS ?=

# Where setup finds the system's cmake too old, it puts one into .venv.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: run test test-kernels test-nvrtc bench docs build wheels setup format lint lint-tools clean

run: build  ## the demo: ARGS="--help" lists its sections
	$(PYTHON) -m examples.demo $(ARGS)

test: build  ## C++ tests, then Python tests; GPU tests run where there is a GPU
	ctest --test-dir $(BUILD) --output-on-failure --parallel $(shell nproc)
	$(PYTHON) -m pytest -n auto --maxprocesses 12

test-kernels: build  ## every kernel of the catalogue compiles without spills: for a machine of many cores
	ctest --test-dir $(BUILD) -C all_kernels -R all_kernels --output-on-failure --parallel $(shell nproc)

test-nvrtc: build  ## other NVRTCs make the same of the kernels, for a machine of many cores: ARGS="--help"
	cmake --build $(BUILD) --target kernel_digests
	$(PYTHON) tools/nvrtc_versions.py $(ARGS)

bench: build  ## measurements against the peers that are installed: ARGS="--help" lists the suites
	$(PYTHON) -m bench $(ARGS)

docs: build  ## build/site/index.html; its page of cleave.torch needs torch. ARGS="-b linkcheck" asks other sites
	@$(PYTHON) -c 'import sphinx, myst_parser, pydata_sphinx_theme, sphinx_copybutton' 2>/dev/null || \
	  $(PYTHON) -m pip install --quiet $$($(PYTHON) tools/requirements.py docs | tr -d ' ')
	$(PYTHON) -m sphinx --quiet -W --keep-going -c docs -d $(BUILD)/pages $(ARGS) . \
	  $(BUILD)/site/$$(sed -n 's/^project(cleave VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)

# Without setup: no package of the system's is needed.
wheels:  ## dist/*.whl for x86_64 and aarch64, and the sources: ARGS="--help" lists what can be left out
	python3 tools/wheels $(ARGS)

build: setup
	@test -f $(BUILD)/build.ninja || \
	  cmake -S . -B $(BUILD) -G Ninja -DPython_EXECUTABLE="$(CURDIR)/$(PYTHON)"
	@cmake --build $(BUILD)

setup:
	@tools/setup.sh

cpp_files = $(shell find include kernels src python tests examples \( -name '*.h' -o -name '*.cpp' \))

format: lint-tools
	.venv/bin/clang-format -i $(cpp_files)
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

lint: lint-tools
	.venv/bin/clang-format --dry-run --Werror $(cpp_files)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

lint-tools: setup
	@test -x .venv/bin/clang-format -a -x .venv/bin/ruff || \
	  $(PYTHON) -m pip install --quiet --ignore-installed $$($(PYTHON) tools/requirements.py lint)

clean:
	rm -rf $(BUILD) .venv
	rm -f python/cleave/_core* python/cleave/_torch_ops* python/cleave/_jax_ops*
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
