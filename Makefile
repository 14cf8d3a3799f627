# make build  all programs, libraries and scripts in target/dist, stripped, with separate debug symbols
# make run    IOR on Trinity at growing node counts, 16 GiB a process, with flows: a table, files, a
#             picture, a report; then a job script on a burst buffer in runs/checkpoint
# make run-packets
#             the same with 64 MiB a process, packet by packet: some minutes
# make test   every check: tests, format, lints, documentation (scripts/test.sh)
# make lint   format, lints and documentation alone (scripts/lint.sh)
# make soak   an hour of faults of every role on three hosts, with programs that verify what they have
#             written: SOAK_MINUTES=3 is shorter, SOAK_SEED=N repeats faults; events are in
#             target/soak.jsonl; needs root
# make interoperation
#             a pool of the last release (packaging/releases), built from the history, is upgraded daemon
#             by daemon; needs root
# make deb    a package for Debian and Ubuntu in target/deb, with units, manual pages and completions
# make slurm-demo  a job with #DW lines under Slurm, on three hosts made of network namespaces;
#             needs root
# make bench  the simulator's speed; the buffer's speed, compared with the underlying file system
#             and with GlusterFS; programs with many small operations on the mount, on libfuse's
#             passthrough_ll and on the local file system; the speed of staging, compared with
#             the disk alone; the speed of MPI-IO through the log, compared with plain MPI-IO

# The directory of cargo, if scripts/setup.sh has just installed it.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

.PHONY: build run run-packets test lint soak interoperation bench deb slurm-demo

build:
	scripts/setup.sh build
	cargo build --release --package forebay --package forebayd --package forebay-datawarp --bins --lib
	cargo build --release --package forebay-preload --package forebay-nornsctl \
		--package forebay-libnorns --package forebay-libnornsctl \
		--package forebay-workflow --package forebay-spank --package forebay-mpiio
	scripts/strip.sh target/release target/dist \
		forebay forebayd mount-forebay dw_wlm_cli dwstat nornsctl libforebay_preload.so libnorns.so \
		libnornsctl.so forebay-workflow libforebay_spank.so libforebay_mpiio.so
	install -m 644 crates/bridges/datawarp/burst_buffer.lua \
		crates/bridges/workflow/lua/forebay_workflow.lua target/dist/

run: build
	target/dist/forebay sim ior --machine trinity-phase2 \
		--nodes 1..8192 --ppn 1 --fidelity flow -- -a POSIX -F -w -r -t 1m -b 16g
	mkdir -p runs/checkpoint/input && seq 500 > runs/checkpoint/input/numbers.txt
	cd runs/checkpoint && rm -rf results && \
		../../target/dist/forebay run --pool-size 1GiB ../../examples/checkpoint.sh

run-packets: build
	target/dist/forebay sim ior --machine trinity-phase2 \
		--nodes 1..8192 --ppn 1 -- -a POSIX -F -w -t 1m -b 64m

test:
	scripts/setup.sh test
	scripts/test.sh

lint:
	scripts/setup.sh test
	scripts/lint.sh

deb: build
	scripts/strip.sh target/release target/dist libdatawarp.so
	install -m 644 target/release/libdatawarp.a target/dist/
	scripts/deb.sh target/dist target/deb

# With the features of the whole workspace, as scripts/test.sh does: nothing is compiled again after it.
BUILD_FOR_TESTS := cargo build --workspace --profile=test --lib --bins

SOAK_MINUTES ?= 60
SOAK_EVENTS ?= $(CURDIR)/target/soak.jsonl
soak: export SOAK_MINUTES := $(SOAK_MINUTES)
soak: export SOAK_EVENTS := $(SOAK_EVENTS)

soak:
	scripts/setup.sh test
	$(BUILD_FOR_TESTS)
	FOREBAY_TEST_PROGRAMS=built cargo test --workspace --test soak -- --nocapture

interoperation:
	scripts/setup.sh test
	$(BUILD_FOR_TESTS)
	FOREBAY_RELEASE=$$(scripts/release.sh target/releases) FOREBAY_TEST_PROGRAMS=built \
		cargo test --workspace --test adjacent_release -- --nocapture

slurm-demo: build
	scripts/setup.sh slurm
	cargo run --release --package forebay --example slurm_demo

bench:
	scripts/setup.sh bench
	cargo bench --package forebay --bench twin
	cargo bench --package forebay-flow --bench flows
	cargo bench --package forebay-plan --bench plan
	cargo bench --package forebay-client --bench buffer
	cargo bench --package forebay-client --bench small_requests
	cargo bench --package forebay-client --bench mounts
	cargo bench --package forebay-stage --bench staging
	cargo bench --package forebay-control --bench controller
	cargo bench --package forebay-mpiio-log --bench log
	cargo bench --package forebay-mpiio --bench mpiio
	cargo build --release --package forebay --bin forebay
	cargo bench --package forebay-mpiio --bench mpiio -- --predict $(CURDIR)/target/release/forebay \
		--json $(CURDIR)/target/tmp/mpiio-prediction.json
	cargo test --package forebay --test plan_pool -- --ignored --nocapture
