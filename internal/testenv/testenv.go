// Package testenv provides real engines for tests.
//
// A fake broker that speaks Kafka's protocol runs in the test's process and is
// always there. For the real one a test takes, in this order, what
// OUTMILL_TEST_KAFKA_URL names, what listens at 127.0.0.1:9092, what the
// machine's Java and Maven can download and start; else it is skipped with one
// line that says what to do. The program in engines starts engines once for
// many test binaries.
//
// PostgreSQL is a real one always: the server that OUTMILL_TEST_POSTGRES_URL
// names, one that listens at 127.0.0.1:5432 and trusts the user postgres, one
// that is started with the machine's programs or with downloaded ones.
// OUTMILL_TEST_POSTGRES_VERSIONS names versions to run on: see EachPostgres.
//
// For MongoDB a test takes the replica set that OUTMILL_TEST_MONGODB_URL names,
// else it starts the mongod that is on PATH.
//
// For SQL Server there is only what OUTMILL_TEST_SQLSERVER_URL names, which may be
// Babelfish for PostgreSQL: see SQLServer.
//
// Tests never share a database: see PostgresDatabase, PostgresSchema and
// MongoDatabase. They never share a topic: see Topic and CreateTopic.
package testenv
