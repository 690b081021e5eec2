# What a newcomer types. Every target prepares the machine first (scripts/setup.sh), which is quick when
# nothing is missing.
PRESET ?= release
JOBS ?= $(shell nproc)
TEST_JOBS ?= 2
BUILD := $(if $(filter release,$(PRESET)),build,build-$(PRESET))
TRACE ?= out/digits.tape
SOAK_KILLS ?= 10000
SOAK_DRAWS ?= 10000
FUZZ_SECONDS ?= 60
SWEEP_FLAGS ?= --samples 2 --calls 12 --at-least operators=2200,modules=247,optimizers=108
FUZZ_PROGRAMS ?= 20000
FUZZ_DEVICE ?= cpu
TORCH ?= 2.15.0
COMPAT_PYTHONS ?= 3.10 3.12 3.13
FUZZ_TARGETS ?= trace_reader ledger_reader trace_text trace_diff planner weights
SOURCES := git ls-files --cached --others --exclude-standard -- '*.h' '*.cc'

.DEFAULT_GOAL := help
.PHONY: help setup configure build demo test test-python compat wheel sweep gpu-pack soak fuzz-build fuzz fuzz-corpus fuzz-python bench bench-python format lint asan tsan man install package clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

setup:
	@scripts/setup.sh

configure: setup
	@echo "configure: preset $(PRESET), in $(BUILD)/"
	@cmake --preset $(PRESET) --log-level=WARNING

build: configure ## build everything
	@echo "build: $(BUILD)/ with $(JOBS) jobs"
	@cmake --build $(BUILD) -j $(JOBS)

demo: configure ## train on digits, replay, and go on in a second process without the model's code
	@echo "build: the demo, in $(BUILD)/"
	@cmake --build $(BUILD) -j $(JOBS) --target digits_train digits_continue
	@echo; echo "== first process: digits_train $(TRACE)"
	@$(BUILD)/examples/digits/digits_train $(TRACE)
	@echo; echo "== second process, without the model's code: digits_continue $(TRACE)"
	@$(BUILD)/examples/digits/digits_continue $(TRACE)

test: build ## build and run every test, of C++ and, with the release preset, of Python
	@echo "test: $(BUILD)/"
	@# threads of tests that run side by side must not wait for each other awake
	@OMP_WAIT_POLICY=$${OMP_WAIT_POLICY:-passive} ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j $(TEST_JOBS)
ifeq ($(PRESET),release)
	@$(MAKE) --no-print-directory test-python
endif

test-python: setup ## build the wheel into a fresh environment and run the Python tests
	@TEST_JOBS=$(TEST_JOBS) scripts/test_python.sh $(BUILD) $(PYTEST_FLAGS)

compat: setup ## build the wheel and run the Python tests with TORCH (2.15.0) and CPython COMPAT_PYTHONS, where this machine has them
	@TORCH=$(TORCH) PYTHONS="$(COMPAT_PYTHONS)" TEST_JOBS=$(TEST_JOBS) scripts/test_pythons.sh $(BUILD) $(PYTEST_FLAGS)

wheel: setup ## build the wheel of this Python in dist/, with the command line and all libraries but torch's
	@scripts/wheel.sh "$$(scripts/python_environment.sh $(BUILD)/wheel-environment)" dist

sweep: ## run every operator, module and optimizer of PyTorch's own tests, after `make test-python`
	@test -x $(BUILD)/python-environment/bin/python || { echo "sweep: no $(BUILD)/python-environment; run make test-python first" >&2; exit 2; }
	@OMP_NUM_THREADS=1 $(BUILD)/python-environment/bin/python scripts/sweep.py --jobs $(TEST_JOBS) $(SWEEP_FLAGS)

gpu-pack: build ## gather what scripts/gpu_check.py runs on a machine with a GPU, in out/gpu
	@scripts/gpu_pack.sh $(BUILD)

soak: configure ## break trace files many times more often than `make test` does
	@echo "build: the tests of storage/, in $(BUILD)/"
	@cmake --build $(BUILD) -j $(JOBS) --target storage_test
	@echo "soak: $(SOAK_KILLS) kills, $(SOAK_DRAWS) losses of power at each call"
	@STEPTAPE_KILLS=$(SOAK_KILLS) STEPTAPE_DRAWS=$(SOAK_DRAWS) $(BUILD)/tests/storage/storage_test --gtest_brief=1

fuzz-build:
	@scripts/setup.sh clang libclang-rt-dev
	@$(MAKE) --no-print-directory configure PRESET=fuzz
	@echo "build: the fuzz targets, in build-fuzz/"
	@cmake --build build-fuzz -j $(JOBS) --target write_seeds $(addprefix fuzz_,$(FUZZ_TARGETS))

fuzz: fuzz-build ## let libFuzzer drive each fuzz target for FUZZ_SECONDS
	@scripts/fuzz.sh build-fuzz $(FUZZ_SECONDS) $(FUZZ_TARGETS)

fuzz-corpus: fuzz-build ## put what fuzzing found, minimised, into tests/fuzz/corpus
	@scripts/fuzz.sh build-fuzz --minimise $(FUZZ_TARGETS)

fuzz-python: ## draw FUZZ_PROGRAMS training programs of Python, after `make test-python`, and compare each with eager; FUZZ_SEED sets the first, FUZZ_DEVICE=cuda is the simulated device
	@test -x $(BUILD)/python-environment/bin/python || { echo "fuzz-python: no $(BUILD)/python-environment; run make test-python first" >&2; exit 2; }
	@cd tests/python && OMP_NUM_THREADS=1 STEPTAPE_SIMULATED_CUDA=$(abspath $(BUILD))/tests/simulated_cuda/libsteptape_simulated_cuda.so ../../$(BUILD)/python-environment/bin/python -m programs --count $(FUZZ_PROGRAMS) --jobs $(TEST_JOBS) --device $(FUZZ_DEVICE) --at-least 0.6 $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

bench: demo ## print eager, recorded and replayed steps side by side
	@echo "build: the benchmarks, in $(BUILD)/"
	@cmake --build $(BUILD) -j $(JOBS) --target steptape_bench steptape_table steptape_serving steptape_diff_bench steptape
	@echo; echo "== steptape_bench"
	@STEPTAPE_BENCH_TRACE=$(TRACE) $(BUILD)/bin/steptape_bench $(BENCH_FLAGS)
	@echo; echo "== steptape_diff_bench: streams of ops, and what they left"
	@$(BUILD)/bin/steptape_diff_bench
	@echo; echo "== steptape_serving: a call in production, beside eager LibTorch and TorchScript"
	@$(BUILD)/bin/steptape_serving --json $(BUILD)/serving.json
	@echo; echo "== steptape_table: small and medium models"
	@$(BUILD)/bin/steptape_table --json $(BUILD)/bench.json $(TABLE_FLAGS)

bench-python: ## print steps in Python beside torch.compile (minutes each) and C++, after `make bench` and `make test-python`
	@test -x $(BUILD)/python-environment/bin/python || { echo "bench-python: no $(BUILD)/python-environment; run make test-python first" >&2; exit 2; }
	@OMP_NUM_THREADS=1 $(BUILD)/python-environment/bin/python bench/python_table.py --cpp $(BUILD)/bin/steptape_table --json $(BUILD)/bench_python.json $(BENCH_PYTHON_FLAGS)
	@OMP_NUM_THREADS=1 $(BUILD)/python-environment/bin/python bench/ranks_table.py --json $(BUILD)/bench_ranks.json

format: setup ## format all sources
	@echo "format: clang-format -i"
	@$(SOURCES) | xargs clang-format -i

lint: configure ## check includes, format and, with clang-tidy, the files changed since main
	@echo "lint: includes, format, clang-tidy"
	@scripts/check_includes.py
	@$(SOURCES) | xargs clang-format --dry-run -Werror
	@cmake --build $(BUILD) -j $(JOBS)
	@scripts/lint_changed.sh $(BUILD)

asan: ## build and run every test with the address and undefined-behaviour sanitizers
	@$(MAKE) --no-print-directory test PRESET=asan

# On one core TBB and OpenMP start no threads of their own: the sanitizer cannot see how they wait for each other, since they are not
# built with it. Threads of the tests still interleave.
tsan: ## build and run every test with the thread sanitizer
	@$(MAKE) --no-print-directory build PRESET=tsan
	@taskset --cpu-list 0 $(MAKE) --no-print-directory test PRESET=tsan

man: configure ## make the manual page and the completions, in man/ and completions/ of the build folder
	@echo "build: the manual, in $(BUILD)/man/"
	@cmake --build $(BUILD) -j $(JOBS) --target man

install: build ## install to PREFIX (default /usr/local)
	@cmake --install $(BUILD) --prefix $(or $(PREFIX),/usr/local)

package: build ## pack what `make install` lays down as a .deb and a .tar.gz, in dist/
	@cpack --config $(BUILD)/CPackConfig.cmake -B dist

clean: ## remove what was built
	rm -rf build build-* out dist
