-- What Ensure and the first call ask about the database and the schema.

-- name: has_meta
-- 0 without the table, under any collation of the catalog, 1 if it is another one, and 2 if it is that of the schema.
SELECT CASE WHEN OBJECT_ID(N'{p:meta}', N'U') IS NULL THEN 0 WHEN COL_LENGTH(N'{p:meta}', N'routes') IS NULL THEN 1 ELSE 2 END AS found;

-- name: version
SELECT m.version, m.compatible FROM {p:meta} AS m WHERE m.only_row = 1;

-- name: database
-- What the store needs of the database, and whether the server is PostgreSQL with Babelfish, which ignores the hints of locks.
SELECT d.compatibility_level AS level, d.is_read_committed_snapshot_on AS versioned, CAST(CASE WHEN SERVERPROPERTY('Babelfish') IS NULL THEN 0 ELSE 1 END AS BIT) AS babelfish
FROM sys.databases AS d WHERE d.name = DB_NAME();

-- name: has_schema
SELECT CASE WHEN SCHEMA_ID(@name) IS NULL THEN 0 ELSE 1 END AS found;

-- name: lock_schema
-- One process at a time creates the schema.
DECLARE @rc INT, @resource NVARCHAR(255) = @name;
EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
IF @rc < 0 THROW 50901, N'outmill: somebody else is at the schema; the call may be repeated', 1;

-- name: taken
-- Which of the names of tables other objects have.
SELECT o.name FROM (SELECT [value] AS name FROM OPENJSON(@tables)) AS i JOIN sys.objects AS o ON o.name = i.name COLLATE DATABASE_DEFAULT
WHERE o.schema_id = SCHEMA_ID(@name) ORDER BY o.name;
