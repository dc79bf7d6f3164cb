# Everything sets itself up in .venv. Variables: PYTHON (python3), TORCH (torch==2.13.0), TORCH_INDEX.

GPU_PY := $(PY)
PY := .venv/bin/python
ARGS ?=
OLDER := ppo mid legacy legacy07
CORE := --ignore=tests/e2e --ignore=tests/docs/test_python_blocks.py --ignore=tests/docs/test_examples.py --ignore=tests/adapters --ignore=tests/faults --ignore=tests/versions --ignore=tests/stack \
	--ignore=tests/conditions/test_live_faults.py \
	--deselect tests/outputs/test_prometheus.py::test_golden --deselect tests/integrations/test_report_to.py
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist worksteal --durations=10

.PHONY: help evidence faults demo demo-ppo stack stack-tests trl-suite gpu test test-all check fix generate golden soak lowest newest versions loggers swift healthy causes compatibility bench pictures docs dist tools clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: ## train a tiny model with TRL on this machine, and serve the run (ARGS="--fault nan@200")
	@scripts/setup demo
	@$(PY) -m rlexporter demo $(ARGS)

demo-ppo: ## the same with PPO, of the last TRL that has it, in an environment of its own
	@scripts/setup trl-ppo .venv-ppo
	@.venv-ppo/bin/python -m rlexporter demo --algorithm ppo $(ARGS)

stack: tools ## the demo under Prometheus and Alertmanager, with our rules; without Docker (ARGS as for demo)
	@scripts/setup demo
	@$(PY) -m scripts.stack $(ARGS)

test: tools ## all checks, and tests of all that matters (about 4 minutes on 2 cores; ARGS="-k golden" runs those alone)
	@scripts/setup test
	@$(if $(ARGS),$(PYTEST) -m "not slow and not soak" $(ARGS),$(PY) -m scripts.suite test)

test-all: ## the same and what is slow, and older versions of TRL; what CI runs (about 25 minutes on 2 cores)
	@scripts/tools & tools=$$!; scripts/setup test && wait $$tools
	@$(if $(ARGS),$(PYTEST) -m "not soak" $(ARGS),$(PY) -m scripts.suite all)

check: ## format, lint, types, generated files, evidence for each condition
	@scripts/setup test
	@echo "check: ruff, mypy, generated files, evidence"
	@$(PY) -m ruff format --check --quiet . || { echo "check: not formatted; run: make fix"; exit 1; }
	@$(PY) -m ruff check --quiet .
	@$(PY) -m mypy
	@$(PY) -m scripts.generate --check
	@$(PY) -m scripts.evidence --check

evidence: ## which conditions recorded runs need: docs/evidence.md; ARGS names folders of other runs (1 minute)
	@scripts/setup test
	@OMP_NUM_THREADS=1 $(PY) -m scripts.evidence --json .work/evidence.json --write $(ARGS)

faults: ## plant faults in live runs of three versions of TRL, and record them: tests/data/faults (about 20 minutes)
	@scripts/setup test
	@for each in ppo legacy; do scripts/setup trl-$$each .venv-$$each || exit 1; done
	@for venv in .venv .venv-ppo .venv-legacy; do \
		TRL_EXPERIMENTAL_SILENCE=1 OMP_NUM_THREADS=1 $$venv/bin/python -W ignore -m tests.faults --record tests/data/faults $(ARGS) || exit 1; \
	done

fix: ## format, and mend what the linter can
	@scripts/setup test
	@$(PY) -m ruff check --quiet --fix . ; $(PY) -m ruff format .

generate: ## write the files that derive from the catalog
	@scripts/setup test
	@$(PY) -m scripts.generate

golden: ## write the golden scrapes anew; read the difference before you commit it
	@scripts/setup test
	@$(PY) -m scripts.golden && git diff --stat tests/data/golden

soak: tools ## tests that take long: scrapes once a minute, every launcher, floods of connections, an hour of attacks
	@scripts/setup test
	@OMP_NUM_THREADS=1 $(PY) -m pytest -m soak --ignore=tests/versions/test_healthy.py --ignore=tests/versions/test_ppo_faults.py --ignore=tests/faults $(ARGS)

lowest: ## the core tests with the oldest versions of the dependencies that are promised
	@scripts/setup lowest .venv-lowest
	@.venv-lowest/bin/python -m pytest -q -W default $(CORE) $(ARGS)

newest: ## the same with the newest versions; PYTHON=python3.14 says on which Python, each in an environment of its own
	@venv=.venv-newest-$$($(or $(PYTHON),python3) -c 'import sys; print("%d.%d" % sys.version_info[:2])') && \
		scripts/setup newest $$venv && $$venv/bin/python -m pytest -q -W default $(CORE) $(ARGS)

versions: tools ## real trainers of older TRL versions, and other loggers, each in an environment of its own (about 10 minutes)
	@scripts/setup test
	@$(PY) -m scripts.suite versions $(ARGS)

loggers: ## W&B, MLflow, Trackio, tensorboardX and verl: real scripts, in an environment of their own (about 2 minutes)
	@scripts/setup test
	@$(PY) -m scripts.suite loggers $(ARGS)

swift: ## the GRPO trainers of ms-swift and Unsloth, in an environment of 2 GB; not part of test-all (about 2 minutes)
	@scripts/setup swift .venv-swift
	@echo "swift: the GRPO trainers of ms-swift and Unsloth"
	@OMP_NUM_THREADS=1 .venv-swift/bin/python -m pytest -q -W default tests/versions/test_swift.py \
		tests/versions/test_unsloth.py $(ARGS)

trl-suite: ## TRL's own tests of GRPO, RLOO and callbacks, without and with us; TRL=PATH of a checkout (about 30 minutes)
	@$(if $(TRL),,echo "trl-suite: name a checkout of TRL: make trl-suite TRL=PATH"; exit 2)
	@scripts/setup trl-suite .venv-suite
	@.venv-suite/bin/python -m scripts.trl_suite $(TRL) $(ARGS)

stack-tests: ## PEFT, compiled models, FSDP2, DeepSpeed, vLLM (a stand-in), on the CPU, in an environment of its own (about 15 minutes)
	@scripts/setup stack .venv-stack
	@echo "stack-tests: PEFT, compiled models, FSDP2, DeepSpeed, a stand-in for vLLM"
	@OMP_NUM_THREADS=1 .venv-stack/bin/python -m pytest -q tests/stack $(ARGS)

gpu: ## all that needs a GPU with CUDA: tests and figures; PY=python uses that python, and fetches nothing
	@$(if $(GPU_PY),,command -v nvidia-smi >/dev/null || { echo "gpu: no GPU with CUDA was found (no nvidia-smi), so nothing was run"; exit 1; })
	@$(if $(GPU_PY),,scripts/setup gpu .venv-cuda)
	@PYTHONPATH=. $(or $(GPU_PY),.venv-cuda/bin/python) -m scripts.gpu $(ARGS)

healthy: ## real runs of every trainer: no alert begins in healthy ones, planted faults are named (about 35 minutes)
	@scripts/setup test
	@for each in $(OLDER); do scripts/setup trl-$$each .venv-$$each || exit 1; done
	@for venv in .venv $(OLDER:%=.venv-%); do \
		TRL_EXPERIMENTAL_SILENCE=1 OMP_NUM_THREADS=1 $$venv/bin/python -m pytest -q -W default tests/versions/test_healthy.py \
			tests/versions/test_ppo.py tests/versions/test_ppo_faults.py tests/faults $(ARGS) || exit 1; \
	done

causes: tools ## what the verdict says first of each fault of the demo, in every version of TRL (about 20 minutes)
	@scripts/setup test
	@for each in ppo legacy; do scripts/setup trl-$$each .venv-$$each || exit 1; done
	@for venv in .venv .venv-ppo .venv-legacy; do \
		TRL_EXPERIMENTAL_SILENCE=1 OMP_NUM_THREADS=1 $$venv/bin/python -m pytest -q -W default tests/versions/test_causes.py $(ARGS) || exit 1; \
	done

compatibility: versions ## write docs/compatibility.md, and the table of docs/dashboards.md, from runs of all versions
	@$(PY) -m pytest -q tests/versions/test_compatibility.py tests/versions/test_panels.py
	@$(PY) -m scripts.panels
	@$(PY) -m scripts.compatibility && git diff --stat docs/compatibility.md

bench: ## figures: what looking at tensors, a log line, a scrape and a whole step cost (10 minutes)
	@scripts/setup bench
	@scripts/setup loggers .venv-loggers
	@scripts/setup trl-ppo .venv-ppo
	@$(PY) -m benchmarks

pictures: tools ## draw the dashboards of real runs: docs/images, and all of them in .work/pictures (10 minutes)
	@scripts/setup pictures
	@$(PY) -m scripts.pictures

docs: ## build the site of docs/ and README.md into .work/site, warnings as errors (1 minute)
	@scripts/setup docs .venv-docs
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict
	@echo "docs: .work/site/index.html"

dist: ## build wheel and sdist, check them, use the wheel without torch and with it, write SBOMs (3 minutes)
	@scripts/dist

tools: ## unpack Prometheus 2 and 3 and a Chromium into .tools/ for the tests (Debian)
	@scripts/tools

clean: ## remove what was set up
	rm -rf .venv .venv-* .tools dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
