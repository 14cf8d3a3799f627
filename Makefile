# make run    IOR on Trinity at growing node counts: a table, files, a picture, a report;
#             then a job script on a burst buffer in runs/checkpoint
# make test   everything that is checked
# make bench  how fast the simulator is; how fast the buffer is, beside the file system underneath
#             and beside GlusterFS; how fast staging is, beside what the disk does alone

# Where rustup puts cargo, if scripts/setup.sh has just installed it.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

.PHONY: run test bench

run:
	scripts/setup.sh build
	cargo build --release --package forebay
	cargo run --quiet --release --package forebay -- sim ior --machine trinity-phase2 \
		--nodes 1..8192 --ppn 1 -- -a POSIX -F -w -t 1m -b 64m
	mkdir -p runs/checkpoint/input && seq 500 > runs/checkpoint/input/numbers.txt
	cd runs/checkpoint && rm -rf results && \
		../../target/release/forebay run --pool-size 1GiB ../../examples/checkpoint.sh

test:
	scripts/setup.sh test
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	cargo test --workspace

bench:
	scripts/setup.sh bench
	cargo bench --package forebay --bench twin
	cargo bench --package forebay-client --bench buffer
	cargo bench --package forebay-stage --bench staging
