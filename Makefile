# Every target works in a clean clone: it creates its environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := CMakeLists.txt pyproject.toml $(shell find allocators/native null_gpu/native workloads/native -name '*.?pp')

.PHONY: demo test asan tsan fuzz fuzz-native test-lowest test-python test-release test-long planted mutants test-null test-torch test-packages wheels truth league originals archive lint bench bench-compare traces check-traces stub wheel test-wheel clean gpu in-place docs doc-pictures screenshot

demo: $(VENV)/.demo  ## ask whether a recorded training run fits 8 GiB, compare every allocator; writes report.html
	$(BIN)/allocbench check gpt2-train --device sim:8GiB || test $$? -eq 1  # it does not fit as it is
	$(BIN)/allocbench compare gpt2-train --device sim:8GiB --html report.html

test: $(VENV)/.test  ## the whole test suite, on all processors; TESTS=tests/commands/test_cli.py runs a part
	$(BIN)/python -m pytest -n auto --dist worksteal $(TESTS)

# The native code built with sanitizers, in an environment that uses the packages of .venv, and the
# tests that run most of it, the readers of files included. Leaks are not looked for: Python frees
# little when it ends. AddressSanitizer needs more memory than one test grants a reader.
# ThreadSanitizer leaves few addresses, 64 GiB for each null GPU; some kernels randomize addresses more
# than it can bear (setarch -R turns that off).
SANITIZED := $(addprefix tests/allocators/,planners strategies test_threads.py test_entry_points.py \
  test_program_streams.py test_captures.py test_external.py) \
  $(addprefix tests/null_gpu/,test_core.py test_driver.py test_values.py) \
  tests/workloads/importers tests/test_fuzz_inputs.py
THREADED := $(addprefix tests/allocators/,test_threads.py test_entry_points.py test_thread_stress.py)
PRELOADED = $$(g++ -print-file-name=lib$(1)san.so) $$(g++ -print-file-name=libstdc++.so)

asan: build/sanitized/address,undefined/.done  ## native tests under AddressSanitizer and UndefinedBehaviorSanitizer
	LD_PRELOAD="$(call PRELOADED,a)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	  $(<D)/bin/python -m pytest -q -n auto --dist worksteal $(SANITIZED) --deselect \
	  tests/workloads/importers/test_pytorch_snapshot.py::test_an_event_with_thirty_frames_takes_less_than_its_frames

tsan: build/sanitized/thread/.done  ## tests with threads under ThreadSanitizer; OPERATIONS=1000000 on each of eight
	rm -f $(<D)/report.*
	LD_PRELOAD="$(call PRELOADED,t)" TSAN_OPTIONS="halt_on_error=1 log_path=$(<D)/report" \
	  $(if $(OPERATIONS),ALLOCBENCH_TEST_OPERATIONS=$(OPERATIONS)) \
	  $$(setarch -R true 2>/dev/null && echo setarch -R) \
	  $(<D)/bin/python -m pytest -q -n auto --dist worksteal $(THREADED) || { cat $(<D)/report.*; false; }

PURELIB := import sysconfig; print(sysconfig.get_path("purelib"))
build/sanitized/%/.done: $(NATIVE) $(VENV)/.test
	$(PYTHON) -m venv build/sanitized/$*
	$(BIN)/python -c '$(PURELIB)' >"$$(build/sanitized/$*/bin/python -c '$(PURELIB)')/tests.pth"
	PATH="$(abspath $(BIN)):$$PATH" build/sanitized/$*/bin/pip install --quiet --no-deps --no-build-isolation \
	  -C build-dir=build/sanitized/$*/native -C cmake.define.SANITIZE=$* --editable .
	touch $@

# PyTorch's CUDA builds without NVIDIA's libraries, each in its own environment; CUDA's headers.
TORCH ?= 2.13.0
test-null: $(VENV)/.test build/headers/.done $(TORCH:%=build/torch/%/.done)  ## programs of TORCH="2.13.0 2.5.1" on the null GPU
	ALLOCBENCH_TEST_TORCH="$(TORCH)" $(BIN)/python -m pytest -n auto --dist worksteal tests/null_gpu

test-torch:  ## the same with all versions that the null GPU is tested with
	$(MAKE) test-null TORCH="2.14.1 2.13.0 2.11.0 2.9.1 2.5.1"

test-packages: $(VENV)/.test build/packages/.done  ## CuPy, RMM and Numba on the null GPU's driver; 230 MB of downloads
	ALLOCBENCH_TEST_PACKAGES=1 $(BIN)/python -m pytest tests/null_gpu/test_packages.py

build/packages/.done: tests/null_gpu/packages.txt | $(BIN)/pip
	$(BIN)/pip install --quiet --no-deps --upgrade --target build/packages -r $<
	touch $@

build/torch/%/.done: tests/null_gpu/requirements.txt
	$(PYTHON) -m venv build/torch/$*
	build/torch/$*/bin/pip install --quiet --no-deps torch===$* accelerate "torchvision===$$($(VISION))"
	build/torch/$*/bin/pip install --quiet -r $<
	build/torch/$*/bin/pip install --quiet --no-deps "$$(build/torch/$*/bin/python -c '$(TRITON)')"
	touch $@
VISION = echo $* | awk -F. '{ print "0." $$2 + 15 "." $$3 }'
TRITON := from importlib.metadata import requires; \
  print(*(one.split(";")[0] for one in requires("torch") if one.startswith("triton")))

WHEELS := 2.14.1 2.13.0 2.11.0 2.9.1 2.5.1
wheels: $(VENV)/.test $(WHEELS:%=build/torch/%/.done) | $(BIN)/pip  ## programs with extension wheels on a null GPU, 3 GB of downloads; NAMES=deepspeed_training
	PYTHONPATH=. $(BIN)/python -m benchmarks.workshop.wheels $(NAMES)

GET_HEADERS := tests/null_gpu/headers/get.py
build/headers/.done: $(GET_HEADERS)
	$(PYTHON) $< build/headers/12 nvidia-cuda-runtime-cu12==12.8.90 nvidia-nvml-dev-cu12==12.9.79
	$(PYTHON) $< build/headers/13 nvidia-cuda-runtime==13.0.96 nvidia-nvml-dev==13.0.87
	touch $@

test-headers: $(VENV)/.test build/headers/.done build/headers/.large  ## the null GPU's declarations against the headers of all libraries, a download of 1 GB
	ALLOCBENCH_TEST_HEADERS=all $(BIN)/python -m pytest tests/null_gpu/test_headers.py

build/headers/.large: $(GET_HEADERS)
	$(PYTHON) $< build/headers/13 nvidia-cudnn-cu13==9.20.0.48 nvidia-cublas==13.1.0.3 \
	  nvidia-nccl-cu13==2.29.7 nvidia-cuda-cccl==13.0.85 nvidia-cuda-crt==13.0.88
	touch $@

# The training programs need a CUDA build of PyTorch with torchvision and transformers: build/truth.
ROWS ?= ../shared/data/xmem/xmem.csv
truth: $(VENV)/.test  ## compare peaks predicted on the null GPU with measured ones; ROWS=file.csv
	$(BIN)/python -m benchmarks.workshop.truth --rows $(ROWS)

# Tests of reading, comparing and reporting, without torch. What `tune` finds depends on Optuna's version,
# and the pages show what the newest one finds.
LOWEST := $(addprefix tests/,workloads/test_files.py workloads/test_csv.py workloads/test_trace.py \
  workloads/test_limits.py replays/test_experiment.py reports test_api.py)
test-lowest: build/lowest/.done  ## the lowest versions of dependencies that are admitted
	build/lowest/bin/python -m pytest -n auto -p no:cacheprovider \
	  --deselect tests/test_api.py::test_the_page_shows_what_the_command_prints $(LOWEST)

build/lowest/.done: tests/lowest.txt pyproject.toml
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/pip install --quiet --constraint $< --editable '.[null,report,sweep]' \
	  hypothesis psutil pytest pytest-xdist selenium
	touch $@

# The native code, and reading, comparing and reporting, with another Python.
OF_PYTHON = $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
test-python:  ## another Python, without torch: PYTHON=python3.13
	$(MAKE) build/python/$(OF_PYTHON)/.done
	build/python/$(OF_PYTHON)/bin/python -m pytest -n auto -p no:cacheprovider $(LOWEST) tests/allocators

build/python/%/.done: $(NATIVE)
	$(PYTHON) -m venv build/python/$*
	build/python/$*/bin/pip install --quiet --editable '.[null,report,sweep,tflite]' \
	  hypothesis nanobind==3.1.0 psutil pytest pytest-xdist selenium
	touch $@

test-release: $(VENV)/.test  ## build the sdist and the wheel twice, compare them, and run the installed wheel
	$(BIN)/python -m tests.release

EVENTS ?= 10000000
test-long: $(VENV)/.test  ## random events through every strategy, each block judged; EVENTS=10000000 for each
	$(BIN)/python -m tests.judged --events $(EVENTS)

planted: $(VENV)/.test  ## plant bugs in a copy of the sources; a test must find each. ONLY=words of its name
	$(BIN)/python -m tests.planted $(if $(ONLY),--only '$(ONLY)')

MOST ?= 60
mutants: $(VENV)/.mutants  ## mutate modules; their tests must notice: PATHS=allocbench/questions MOST=60 (0: all) QUICK=6 (seconds) SEED=1
	$(BIN)/python -m tests.mutants $(PATHS) --most $(MOST) $(if $(QUICK),--quick $(QUICK)) $(if $(SEED),--seed $(SEED)) $(if $(TESTS),--tests $(TESTS))

SECONDS ?= 60
fuzz: $(VENV)/.fuzz  ## hostile files, hostile texts and random calls; SECONDS=60 of all together
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

# libFuzzer also sees the native code that an input reaches, and AddressSanitizer watches it.
CLANG ?= clang-16
FUZZED := build/sanitized/address,fuzzer-no-link
$(FUZZED)/.done: private export CC := $(CLANG)
$(FUZZED)/.done: private export CXX := $(subst clang,clang++,$(CLANG))
fuzz-native: $(VENV)/.fuzz $(FUZZED)/.done  ## the same with instrumented native code; needs CLANG=clang-16 or later
	LD_PRELOAD="$$($(BIN)/python -c 'import atheris; print(atheris.path())')/asan_with_fuzzer.so" \
	  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
	  $(FUZZED)/bin/python -m tests.fuzz --seconds $(SECONDS)

lint: $(VENV)/.lint  ## ruff, mypy, clang-format
	$(BIN)/pre-commit run --all-files

bench: $(VENV)/.bench  ## the fast benchmarks on the working tree; results are not stored
	$(BIN)/asv machine --yes
	$(BIN)/asv check -E existing:same
	$(BIN)/asv run -E existing:same --bench Fast --launch-method forkserver --show-stderr

BASE ?= main
HEAD ?= HEAD
bench-compare: $(VENV)/.bench  ## check whether a commit changed counted results or instructions: BASE=main HEAD=HEAD
	PYTHONPATH=. $(BIN)/python -m benchmarks.workshop.asv_results compare $(BASE) $(HEAD) $(if $(SUMMARY),--markdown $(SUMMARY))

# The bundled traces are made on a null GPU with a CUDA build of this PyTorch.
TRACES := build/torch/2.13.0
traces: $(VENV)/.test $(TRACES)/.done  ## re-create the bundled traces, byte for byte; NAMES="gpt2-train" for some
	$(BIN)/python -m benchmarks.workshop.bundled_traces --python $(TRACES)/bin/python $(NAMES)

check-traces: $(VENV)/.test $(TRACES)/.done  ## re-create the bundled traces elsewhere and compare the bytes
	$(BIN)/python -m benchmarks.workshop.bundled_traces --python $(TRACES)/bin/python --check

docs: $(VENV)/.docs  ## build the documentation site into build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

verdicts: $(VENV)/.test  ## re-create the table of docs/verdicts.md
	$(BIN)/python -m benchmarks.workshop.verdicts

league: $(VENV)/.test  ## rank allocators and planners on the frozen set; writes the table and pictures of docs/league.md
	$(BIN)/python -m docs.generate.league

originals: $(VENV)/.test  ## play the league with the originals of the replicas; NAMES="RMM ggml" for some, SOURCES=folder
	PYTHONPATH=. SOURCES="$(or $(SOURCES),build/originals/sources)" $(BIN)/python -m benchmarks.workshop.originals $(NAMES)

archive: $(VENV)/.test  ## the data of the league as one file with a manifest, into dist/, and its SHA-256
	PYTHONPATH=. $(BIN)/python -m benchmarks.workshop.archive dist

claims: $(VENV)/.test verdicts  ## re-create the numbers of the pages on agreement with real GPUs, and the table of verdicts
	$(BIN)/python -m docs.generate.claims

doc-pictures: $(VENV)/.demo  ## re-draw the pictures of the strategies' pages
	$(BIN)/python -m docs.generate.pictures

screenshot: $(VENV)/.test  ## re-create the table and the picture of the README; needs Chromium
	mkdir -p build
	COLUMNS=110 $(BIN)/allocbench compare gpt2-train --allocators caching,bfc,expandable,planned
	$(BIN)/allocbench check gpt2-train --device sim:8GiB --html build/report.html || test $$? = 1
	$(BIN)/python -m docs.generate.screenshot build/report.html docs/report.png

stub: $(VENV)/.test  ## re-create the type stubs of the native modules
	$(BIN)/python -m nanobind.stubgen -q -m allocbench.allocators._core -o allocators/_core.pyi
	$(BIN)/python -m nanobind.stubgen -q -m allocbench.workloads._native -o workloads/_native.pyi

# The results of the GPU at hand, into benchmarks/results. PYTHON must have torch built for CUDA
# (and CuPy for its stage); no network is needed. ONLY=stage,stage chooses; what is there stays.
# BUDGET=seconds ends it in time (exit code 3 if tasks are left: run it again). Each GPU has a folder in
# INTO=folder, and an archive of it.
# DRY=1 goes through all of it in small, on the processor and the null GPU's driver, with what
# the tests need. NULL=null:h100 goes through it at full size on a null GPU, with a CUDA build of PyTorch.
ifdef DRY
gpu: $(VENV)/.test
	LD_LIBRARY_PATH=$$($(BIN)/python -m tests.null_driver) PYTHONPATH=. $(BIN)/python -m benchmarks.workshop.gpu \
	  --dry --into $(or $(INTO),build/gpu-dry) $(if $(ONLY),--only $(ONLY)) $(if $(BUDGET),--budget $(BUDGET)) $(if $(JOBS),--jobs $(JOBS))
else ifdef NULL
gpu: $(VENV)/.test build/torch/$(TORCH)/.done
	PYTHONPATH=.:$$(echo build/torch/$(TORCH)/lib/python3*/site-packages) $(BIN)/python -m benchmarks.workshop.gpu \
	  --null $(NULL) --into $(or $(INTO),build/gpu-null) $(if $(ONLY),--only $(ONLY)) $(if $(BUDGET),--budget $(BUDGET)) $(if $(JOBS),--jobs $(JOBS))
else
gpu: in-place  ## every measurement on a real GPU
	PYTHONPATH=. $(PYTHON) -m benchmarks.workshop.gpu $(if $(ONLY),--only $(ONLY)) \
	  $(if $(BUDGET),--budget $(BUDGET)) $(if $(INTO),--into $(INTO)) $(if $(JOBS),--jobs $(JOBS))
endif

in-place:  ## build the native modules into this folder, with PYTHON as it is
	cmake -S . -B build/in-place -DCMAKE_BUILD_TYPE=Release \
	  -DPython_EXECUTABLE=$$(command -v $(PYTHON)) \
	  -Dnanobind_DIR=$$($(PYTHON) -m nanobind --cmake_dir)
	cmake --build build/in-place --parallel $$(nproc)
	for file in build/in-place/_core*.so; do \
	  cp $$file allocators/.core.so && mv allocators/.core.so allocators/$${file##*/}; done
	for file in build/in-place/_native*.so; do \
	  cp $$file workloads/.native.so && mv workloads/.native.so workloads/$${file##*/}; done

# zig is Clang with headers and stubs of each glibc, and links its own C++ library statically.
GLIBC := 2.28
ZIG = $$PWD/$$(echo build/wheel/lib/python3*/site-packages/ziglang/zig)
wheel: build/wheel/.done  ## build a wheel into dist/ that runs on any Linux of glibc 2.28 or later
	CCACHE_DISABLE=1 CC="$(ZIG) cc -target $$(uname -m)-linux-gnu.$(GLIBC)" \
	  CXX="$(ZIG) c++ -target $$(uname -m)-linux-gnu.$(GLIBC)" \
	  build/wheel/bin/pip wheel --quiet --no-deps -C build-dir=build/wheel/native -w build/wheel/plain .
	PATH="$(abspath build/wheel/bin):$$PATH" build/wheel/bin/auditwheel repair --only-plat \
	  --plat manylinux_$(subst .,_,$(GLIBC))_$$(uname -m) -w dist build/wheel/plain/*.whl
	rm -r build/wheel/plain

build/wheel/.done: tests/wheel.txt
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/pip install --quiet -r $<
	touch $@

test-wheel: wheel  ## the wheel, alone in an empty environment without a compiler
	build/wheel/bin/python -m tests.wheel dist

clean:
	rm -rf $(VENV) build dist report.html

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

# Installs this project with extras, or with `$(2)` beside the compiler, and shows what is downloaded and
# compiled. The log is kept; its end is shown when something fails.
comma := ,
PIP = $(BIN)/pip install --verbose --no-compile
define install
@mkdir -p build && : >build/install.log
@echo "installing $(1) into $(VENV); compiling the native core takes minutes the first time"
@{ $(if $(2),$(PIP) $(2) & beside=$$!; $(PIP) --no-deps,$(PIP)) --editable '$(1)'; \
  built=$$?; wait $$beside && exit $$built; } \
  >build/install.log 2>&1 & pid=$$!; \
  tail --pid=$$pid -n +1 -f build/install.log | grep --line-buffered -oE '$(PROGRESS)'; \
  wait $$pid || { tail -n 60 build/install.log; exit 1; }
endef
PROGRESS := ^ *(Collecting [^ ;]+|\[[0-9]+/[0-9]+\] [A-Z][a-z]+ CXX [a-z]+ .*)

$(VENV)/.demo: $(NATIVE) | $(BIN)/pip
	$(call install,.,$$($(BIN)/python -c '$(NEEDED)' null report sweep))
	touch $@
NEEDED := import sys, tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  extras = map(project["optional-dependencies"].get, sys.argv[1:]); \
  print(*project["dependencies"], *sum(extras, []))

$(VENV)/.test: $(NATIVE) | $(BIN)/pip
	$(call install,.[test])
	touch $@ $(VENV)/.demo

$(VENV)/.bench: $(NATIVE) $(wildcard asv_plugin/*/*/*.py) | $(BIN)/pip
	$(call install,.[bench])
	$(BIN)/pip install --quiet --editable ./asv_plugin
	touch $@

$(VENV)/.fuzz: $(VENV)/.test
	$(call install,.[fuzz])
	touch $@

$(VENV)/.mutants: $(VENV)/.test
	$(call install,.[mutants])
	touch $@

$(VENV)/.docs: $(NATIVE) | $(BIN)/pip
	$(call install,.[docs])
	touch $@

$(VENV)/.lint: $(VENV)/.test
	$(call install,.[test$(comma)lint])
	touch $@
