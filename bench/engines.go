package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill/internal/testenv/kafkaengine"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
)

// engines has the servers: those that flags name, or servers that the bench starts and ends.
type engines struct {
	postgresURL, kafkaAddr, mongoURL, mysqlURL, sqlserverURL string
	log                                                      func(format string, args ...any)
	ends                                                     []func()
}

func (e *engines) end() {
	for i := len(e.ends) - 1; i >= 0; i-- {
		e.ends[i]()
	}
	e.ends = nil
}

// postgresSettings are settings for production on a small machine: the server waits for the disk,
// and has room to write.
var postgresSettings = []string{
	"fsync=on", "full_page_writes=on", "synchronous_commit=on",
	"shared_buffers=1GB", "max_wal_size=4GB", "max_connections=200", "shared_preload_libraries=pg_stat_statements",
}

// postgres returns the URL of a server.
func (e *engines) postgres(ctx context.Context) (string, error) {
	if e.postgresURL != "" {
		return e.postgresURL, nil
	}
	e.log("starting PostgreSQL")
	bin, err := postgresengine.Binaries(ctx)
	if err != nil {
		return "", fmt.Errorf("no PostgreSQL to start (give one with -postgres): %w", err)
	}
	dir, err := os.MkdirTemp("", "outmill-bench-postgres-")
	if err != nil {
		return "", err
	}
	engine, err := postgresengine.Prepare(ctx, bin, dir, postgresSettings...)
	if err == nil {
		err = engine.Start(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("start PostgreSQL: %w", err)
	}
	e.ends = append(e.ends, engine.End)
	e.postgresURL = engine.URL
	return engine.URL, nil
}

// warmUpRecords is about the number of records, in small requests, after which a new broker has
// compiled its most used code. The broker compiles in one tier only. The second tier would take a
// third of a core from the measured side for minutes, and a broker that is 90 % idle would gain
// nothing.
const warmUpRecords = 20_000

func warmUp(ctx context.Context, broker string) error {
	topic, err := newTopic(ctx, broker)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.DefaultProduceTopic(topic), kgo.MaxBufferedRecords(10))
	if err != nil {
		return err
	}
	defer client.Close()
	var failed error
	for range warmUpRecords {
		client.Produce(ctx, kgo.SliceRecord(make([]byte, 200)), func(_ *kgo.Record, err error) { failed = cmp.Or(failed, err) })
	}
	return cmp.Or(client.Flush(ctx), failed)
}

// kafka returns the address of a broker.
func (e *engines) kafka(ctx context.Context) (string, error) {
	if e.kafkaAddr != "" {
		return e.kafkaAddr, nil
	}
	e.log("starting Kafka")
	dir, err := os.MkdirTemp("", "outmill-bench-kafka-")
	if err != nil {
		return "", err
	}
	engine, err := kafkaengine.Prepare(ctx, dir)
	if err == nil {
		err = engine.StartAttached(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("start Kafka (give one with -kafka): %w", err)
	}
	e.ends = append(e.ends, engine.Detach)
	if err := warmUp(ctx, engine.Addr); err != nil {
		return "", fmt.Errorf("warm up Kafka: %w", err)
	}
	e.kafkaAddr = engine.Addr
	return engine.Addr, nil
}

var databaseNumber atomic.Int64

// database makes an empty database, and a pool on it. Both are removed when the bench ends.
func (b *bench) database(ctx context.Context, name string) (*pgxpool.Pool, error) {
	return b.databaseWith(ctx, name, func(config *pgxpool.Config) { config.MaxConns = 32 })
}

// databaseWith is database with other settings of the pool.
func (b *bench) databaseWith(ctx context.Context, name string, set func(config *pgxpool.Config)) (*pgxpool.Pool, error) {
	server, err := b.engines.postgres(ctx)
	if err != nil {
		return nil, err
	}
	name = fmt.Sprintf("bench_%s_%d_%d", name, os.Getpid(), databaseNumber.Add(1))
	if err := onServer(ctx, server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)", "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(server)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.Database = name
	set(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	b.engines.ends = append(b.engines.ends, func() {
		pool.Close()
		_ = onServer(context.WithoutCancel(ctx), server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	})
	b.postmaster, _ = postmaster(ctx, pool)
	return pool, b.describePostgres(ctx, pool)
}

func onServer(ctx context.Context, url string, statements ...string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// describePostgres notes once the version and the settings on which the numbers depend.
func (b *bench) describePostgres(ctx context.Context, pool *pgxpool.Pool) error {
	for _, fact := range b.results.facts {
		if fact[0] == "postgres" {
			return nil
		}
	}
	var version, settings string
	err := pool.QueryRow(ctx, `SELECT current_setting('server_version'), string_agg(name || '=' || current_setting(name), ' ' ORDER BY name)
FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size')`).Scan(&version,
		&settings)
	if err != nil {
		return err
	}
	b.results.fact("postgres", version)
	b.results.fact("postgres_settings", strings.TrimSpace(settings))
	return nil
}
