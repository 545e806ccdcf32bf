// Package monitor tells operators how an outbox is doing. [Health] answers the readiness and
// liveness probes of an orchestrator, and names the remedy of each problem that it finds. [Metrics] measures stores,
// publishers and handlers through the API of OpenTelemetry, and [Traces] makes spans of a message's way.
package monitor
