# What a user types: make quickstart, make test. `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
BASE ?= results
CONFIG ?= config/quickstart.yaml
CLUSTER ?= tests/suite/cluster.yaml
BUDGET ?= 20m
BIN = $(VENV)/bin
MILABENCH = $(BIN)/milabench

.PHONY: help quickstart qualify demo-cluster demo-slurm test test-everywhere fast check fmt e2e fuzz docs figures perf lock release clean gpu gpu-wheels

help:
	@echo "make quickstart   install milabench into $(VENV), then install, prepare, run and report $(CONFIG)"
	@echo "make qualify      the same suite measured until its numbers are precise to 5 %, at most 20 minutes on an idle machine; BUDGET=1h"
	@echo "make demo-cluster three machines in network namespaces (root, sshd), $(CLUSTER) run over them, its report"
	@echo "make demo-slurm   a Slurm cluster on this machine (slurmctld, slurmd), $(CONFIG) run on it in one allocation and as jobs"
	@echo "make test         set up and run the tests"
	@echo "make check        formatting, lint, types, English of the pages"
	@echo "make fast         the loop of an edit: the quick unit tests of the rooms that you changed, or ROOMS=\"report plan\""
	@echo "make e2e          the slow tests: real suites in real environments; properties with all their examples"
	@echo "make suite-health every benchmark of config/ci.yaml installed, prepared and run; SHARD=1/4 takes a fourth; exit 1 where one fails"
	@echo "make test-everywhere the tests in fresh clones: as several users, in odd folders, on several Pythons, beside load; ONLY=user,py3.14 chooses"
	@echo "make fuzz         20,000 mutated inputs of every kind; SEED=1 MINUTES=10 INPUTS=5000; exit 1 on a defect"
	@echo "make perf         what the harness itself costs, with goals and verdicts, into docs/measurements.md; leave the machine alone"
	@echo "make gpu          what only an accelerator can show, PART=1 to 5, each at most 9 minutes; results in $(BASE)/gpu"
	@echo "make gpu-wheels   what make gpu needs where there is no network, in build/gpu-wheels"
	@echo "make fmt          format the code"
	@echo "make docs         write the generated pages of docs/, build and check the site and llms.txt in build/docs/site"
	@echo "make figures      count lines, circles, complexity; write them to the architecture page"
	@echo "make lock         pin the control plane's own dependencies in constraints/milabench.txt, which its images install"
	@echo "make release      build the distributions into dist/, try the wheel, write SBOMs (CycloneDX) and SHA256SUMS, tag the version"
	@echo "make clean        remove $(VENV); environments and runs in $(BASE) stay"

# How many tests of processes run at once, beside those of units and of benchmate; more than there are cores, for they wait.
AT_ONCE ?= 3
# Of the tests of processes a third runs, another with every commit (tests/turns.py); `make test ALL=1` runs all, and
# `make test TURN=0`, TURN=1 and TURN=2 run a third each.
ALL ?=
TURN ?=
IN_TURN = $(if $(ALL),,--in-turn$(if $(TURN),=$(TURN)))
# The slow tests make their own load; the files share nothing. E2E="e2e and not long" leaves the slowest out, and the slow tests of
# `make test` with all their examples.
E2E_AT_ONCE ?= 2
E2E ?= e2e or slow or turns
# RETRY=1 runs up to three tests that failed once more, alone: real processes on a busy machine. What fails twice has failed.
RETRY ?=
# DURATIONS=build/durations.txt keeps the seconds of each file of tests.
DURATIONS ?=
RUN_PARTS = $(BIN)/python tests/run_parts.py $(if $(RETRY),--retries 3) $(if $(DURATIONS),--durations $(DURATIONS))
PARALLEL = -q -n $(AT_ONCE) --dist worksteal

# Byte code is kept next to the code, so that a benchmark does not time its own compilation.
export PYTHONDONTWRITEBYTECODE =

# uv takes a fraction of pip's time; where it cannot, pip can, which has settings of its own (pip.conf).
define install
$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python $(1) || \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(1)
endef

$(VENV)/.installed: pyproject.toml
	@echo "== making $(VENV) and installing milabench into it"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11; say make PYTHON=/path/to/python3.11"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: pyproject.toml benchmate/pyproject.toml $(VENV)/.installed
	@echo "== installing the development tools into $(VENV)"
	@$(call install,-e '.[dev]' -e ./benchmate)
	@touch $@

quickstart: $(VENV)/.installed
	@$(MILABENCH) quickstart --config $(CONFIG) --base $(BASE)

# How long it takes says `run` before it begins; how each number is judged says its end.
qualify: $(VENV)/.installed
	@echo "== --profile default: leave the machine alone meanwhile"
	@$(MILABENCH) quickstart --config $(CONFIG) --base $(BASE) --profile default --budget $(BUDGET)

demo-cluster: $(VENV)/.installed
	@$(BIN)/python tests/ssh/demo_cluster.py --base $(BASE) --config $(CLUSTER)

demo-slurm: $(VENV)/.installed
	@$(BIN)/python tests/slurm/demo.py --base $(BASE) --config $(CONFIG)

# Units in one process: each worker of xdist would collect all of them, and handing them out costs more than most of them take.
test: $(VENV)/.dev
	$(RUN_PARTS) --together benchmate "-q -n 2 --dist worksteal" . "-q $(IN_TURN) -m 'not e2e' tests/unit" \
		. "$(PARALLEL) $(IN_TURN) -m 'not e2e' --ignore=tests/unit"

# As root, for root becomes an ordinary user too. `python tests/everywhere.py --help` has more.
ONLY ?=
TESTS ?=
test-everywhere:
	$(PYTHON) tests/everywhere.py --only "$(ONLY)" --tests "$(TESTS)"

# In one process: thousands of tests of milliseconds cost twice as much when they are handed out one by one.
ROOMS ?=
fast: $(VENV)/.dev
	@tests=$$($(BIN)/python -m tests.changed $(ROOMS)) && echo "== unit tests of what was changed:" $$tests && \
		$(BIN)/python -m pytest -q -m "not slow and not e2e" $$tests

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/proselint check --config docs/proselint.json docs $(wildcard *.md)

# pytest keeps the tests with their assertions rewritten as byte code. Where that is not there yet, each worker of `make test`
# makes all of it at once; one process before them does it once, and finds what cannot be collected.
.PHONY: collect
collect: $(VENV)/.dev
	@echo "== collecting the tests"
	@said=$$($(BIN)/python -m pytest -qq --collect-only 2>&1) || { echo "$$said" | tail -n 60; exit 1; }

fmt: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

e2e: $(VENV)/.dev
	ALL_EXAMPLES=1 $(RUN_PARTS) $(if $(findstring or slow,$(E2E)),benchmate "-q -n $(E2E_AT_ONCE) --dist worksteal -m slow") \
		. "-q -n $(E2E_AT_ONCE) --dist loadfile --durations=10 -m '$(E2E)'"

# What it found is in $(BASE)/suite-health.json; `python tests/suite_health.py write FILE...` puts it into docs/suite.md.
SHARD ?= 1/1
.PHONY: suite-health
suite-health: $(VENV)/.installed
	@$(BIN)/python tests/suite_health.py run --config config/ci.yaml --base $(BASE) --shard $(SHARD)

# What had a defect is kept in fuzz-defects/; the smallest input of each belongs in tests/fuzz/corpus.
SEED ?= 0
MINUTES ?= 60
INPUTS ?= 20000
fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --inputs $(INPUTS) --seed $(SEED) --minutes $(MINUTES)

# Not in $(VENV): types are checked where torch is not installed.
PERF = $(VENV)/perf
$(PERF)/.installed: $(VENV)/.dev constraints/cpu.txt
	@echo "== making $(PERF), with torch"
	@$(PYTHON) -m venv $(PERF)
	@$(PERF)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -e ./benchmate numpy torch -c constraints/cpu.txt
	@touch $@

# PROGRAMS="startup observer" measures a part, and leaves the page alone.
PROGRAMS ?=
perf: $(PERF)/.installed
	@$(PERF)/bin/python tests/perf $(or $(PROGRAMS),--write)

# What only an accelerator can show, with the packages of $(PYTHON) and those of $(WHEELS); needs no network. Without an accelerator
# it is a simulated one. FROM=PROGRAM leaves out the programs before it. docs/how-to/check-an-accelerator.md
PART ?= 1
FROM ?=
OUT ?= $(BASE)/gpu
WHEELS ?= build/gpu-wheels
GPU = build/gpu
gpu:
	@began=$$(date +%s); $(PYTHON) tests/gpu/environment.py $(GPU) $(WHEELS) && \
	GPU_BEGAN=$$began GPU_WHEELS=$(abspath $(WHEELS)) $(GPU)/bin/python -m tests.gpu --part $(PART) --out $(OUT) $(if $(FROM),--from $(FROM))

gpu-wheels: $(VENV)/.installed
	@$(BIN)/python tests/gpu/wheels.py $(WHEELS)

figures: $(VENV)/.installed
	$(BIN)/python -m tests.figures --write

$(VENV)/.docs: $(VENV)/.dev
	@echo "== installing what builds the documentation into $(VENV)"
	@$(call install,-e '.[docs]')
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/python docs/generate.py
	$(BIN)/python -m docs.build_site
	$(BIN)/python -m pytest -q tests/unit/test_docs.py tests/unit/test_site.py

# flit_core builds benchmate in an image. Comments of a lock that milabench reads: plan/requirements.py.
lock: $(VENV)/.dev
	echo 'flit_core>=3.11,<4' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-annotate --upgrade --output-file constraints/milabench.txt pyproject.toml - > /dev/null
	sed -i '1i # python: 3.11\n# made by: make lock' constraints/milabench.txt

# A release is what a commit holds, under the tag of its version; the tag is made last, when all of it is there.
release: $(VENV)/.dev
	@test -z "$$(git status --porcelain)" || { echo "error: there are files that no commit holds; commit or remove them"; exit 2; }
	@version=v$$($(BIN)/python -m hatchling version) && held=$$(git rev-parse -q --verify "$$version^{commit}" || git rev-parse HEAD) && \
		test "$$held" = "$$(git rev-parse HEAD)" || \
		{ echo "error: this version has a tag at another commit; raise orchestrator/milabench/version.py"; exit 2; }
	rm -rf dist
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[release]'
	$(BIN)/python -m pytest -q tests/e2e/test_wheel.py
	$(BIN)/python -m hatchling build -d $(CURDIR)/dist
	$(BIN)/uv build -q -o dist benchmate
	$(PYTHON) -m venv dist/empty && dist/empty/bin/pip install --quiet --disable-pip-version-check dist/milabench-*.whl
	rm dist/empty/lib/python*/site-packages/milabench-*.dist-info/direct_url.json  # names this folder
	mkdir dist/sbom && $(BIN)/cyclonedx-py environment --output-reproducible -o dist/sbom/milabench.cdx.json dist/empty/bin/python
	rm -rf dist/empty
	for lock in benchmarks/[a-z]*/requirements.*.txt benchmarks/_environments/*/requirements.*.txt; do \
		name=$${lock#benchmarks/}; name=$${name#_environments/}; name=$${name%.txt}; \
		$(BIN)/cyclonedx-py requirements --output-reproducible -o "dist/sbom/$$(echo $$name | sed s,/requirements,,).cdx.json" $$lock || exit 1; \
	done
	cd dist && sha256sum *.whl *.tar.gz sbom/* > SHA256SUMS
	git tag --annotate --force "v$$($(BIN)/python -m hatchling version)" --message "milabench $$($(BIN)/python -m hatchling version)"
	@echo "== dist/ holds $$(ls dist | wc -l) files; push the tag with: git push origin v$$($(BIN)/python -m hatchling version)"

clean:
	rm -rf $(VENV)
