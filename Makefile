# One profile everywhere, so that llama.cpp is compiled once.
FEATURES ?=
CARGO_FLAGS = --release $(if $(FEATURES),--features $(FEATURES))

.PHONY: chat build model test lint figures

## Everything from a fresh checkout to the chat. ARGS="…" are its arguments, FEATURES=metal|cuda|vulkan its GPU.
chat: build model
	@exec target/release/llmchat $(ARGS)

build: setup
	@[ -x target/release/llmchat ] || echo "build: the first build compiles llama.cpp, 4 to 12 minutes" >&2
	@cargo build $(CARGO_FLAGS) --quiet

model: setup
	@scripts/fetch-model default

.PHONY: setup
setup:
	@LLMCHAT_HAS_MODELS=$$(scripts/fetch-model --there && echo yes) scripts/setup

## All tests, with the real models.
test: setup
	@scripts/fetch-model all
	cargo test $(CARGO_FLAGS)

## What keeps the code as it is: format, clippy, docs, dependencies.
lint: setup
	cargo fmt --check
	cargo clippy $(CARGO_FLAGS) --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc $(CARGO_FLAGS) --no-deps --quiet
	@scripts/deny

## The README's figures, measured here: takes some minutes on a quiet machine.
figures: build model
	@python3 scripts/figures.py
