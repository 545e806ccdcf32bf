# Every target has a line of help: `make` prints them.
GOLANGCI_VERSION := v2.15.0

.DEFAULT_GOAL := help
.PHONY: help
help: ## print this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-14s %s\n", $$1, $$2}'

.PHONY: test
test: ## run the tests, in minutes, and say what was left out, why, and how to have it run
	@./.ci/test ./...

.PHONY: test-all
test-all: ## run all tests, the long ones too: random walks, chaos, a million records, each suite in all its variants
	@OUTMILL_TEST_ALL=1 ./.ci/test -count=1 -timeout 40m ./...

.PHONY: skipped
skipped: ## the same as test, but run what has passed before
	@./.ci/test -count=1 ./...

.PHONY: race
race: ## run the tests with the race detector
	@./.ci/test -race ./...

.PHONY: flaky
flaky: ## run the tests 20 times under the race detector: a flaky test is a bug
	go test -race -short -count=20 ./...

.PHONY: stress
stress: ## run Watermill's stress suite on every store
	go test -tags stress -run /stress -timeout 60m ./internal/allstores

.PHONY: chaos
chaos: ## kill and stop processes, cut connections, restart engines for two minutes on each engine that can be had, and count what was lost
	OUTMILL_TEST_ALL=1 OUTMILL_CHAOS_DURATION=$${OUTMILL_CHAOS_DURATION:-2m} go test -v -count=1 -timeout 20m ./internal/chaos

.PHONY: mutants
mutants: ## break each promise and each default by a change of the code, and check that its tests notice; it takes most of an hour
	go run ./internal/mutants

.PHONY: versions
versions: ## run the PostgreSQL store's contract on each version that can be had
	OUTMILL_TEST_ALL=1 OUTMILL_TEST_POSTGRES_VERSIONS=14,15,16,17,18 go test -count=1 -timeout 30m -run /each_version ./postgres

.PHONY: sql
sql: ## check the T-SQL of the SQL Server store with Microsoft's own tools, which takes python3 with venv
	./.ci/sql

.PHONY: examples
examples: ## run the quickstart and the examples' tests
	go run -C _examples ./quickstart
	go test -C _examples ./...

.PHONY: lint
lint: ## vet, formatting, import rules, linters
	go vet ./...
	go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION) run ./... ./cmd/outmill/...

.PHONY: fmt
fmt: ## format the code
	go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION) fmt ./... ./cmd/outmill/...

.PHONY: ci
ci: ## all that CI runs, engines included
	./.ci/run
