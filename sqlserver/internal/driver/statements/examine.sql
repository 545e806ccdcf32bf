-- What doctor asks. To see other sessions needs VIEW SERVER STATE (on Azure SQL VIEW DATABASE STATE).

-- name: examined_user
-- Who asks, and whether that user sees each object of the database.
SELECT SUSER_SNAME() AS name, CAST(ISNULL(HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DEFINITION'), 0) AS BIT) AS sees_all;

-- name: lacking_rights
-- Which rights of @rights the user lacks, and whether it sees their objects.
SELECT r.name, r.class, r.permission, CASE r.class WHEN N'TYPE' THEN TYPE_ID(r.name) ELSE OBJECT_ID(r.name) END AS object
FROM (SELECT JSON_VALUE([value], '$.name') AS name, JSON_VALUE([value], '$.class') AS class,
	JSON_VALUE([value], '$.permission') AS permission FROM OPENJSON(@rights)) AS r
WHERE ISNULL(HAS_PERMS_BY_NAME(r.name, r.class, r.permission), 0) = 0;

-- name: usable_indexes
-- The indexes of the schema that are not disabled.
SELECT i.name FROM sys.indexes AS i JOIN sys.objects AS o ON o.object_id = i.object_id
WHERE o.schema_id = SCHEMA_ID(@name) AND i.name IS NOT NULL AND i.is_disabled = 0;

-- name: old_transactions
-- The transactions of other sessions that have written to the database and are older than @seconds.
SELECT TOP (@most) s.session_id, ISNULL(s.program_name, N'') AS program, s.status,
	DATEDIFF_BIG(MILLISECOND, d.database_transaction_begin_time, GETDATE()) AS age
FROM sys.dm_tran_database_transactions AS d JOIN sys.dm_tran_session_transactions AS t ON t.transaction_id = d.transaction_id
JOIN sys.dm_exec_sessions AS s ON s.session_id = t.session_id
WHERE d.database_id = DB_ID() AND s.session_id <> @@SPID AND d.database_transaction_begin_time < DATEADD(SECOND, -@seconds, GETDATE())
ORDER BY d.database_transaction_begin_time;

-- name: lock_waits
-- The requests in the database that have waited for a lock for more than @limit milliseconds.
SELECT TOP (@most) r.session_id, ISNULL(s.program_name, N'') AS program, r.wait_type, CAST(r.wait_time AS BIGINT) AS waited, r.blocking_session_id,
	ISNULL(b.program_name, N'') AS blocker, ISNULL(b.status, N'') AS status
FROM sys.dm_exec_requests AS r JOIN sys.dm_exec_sessions AS s ON s.session_id = r.session_id
LEFT JOIN sys.dm_exec_sessions AS b ON b.session_id = r.blocking_session_id
WHERE r.database_id = DB_ID() AND r.wait_type LIKE N'LCK%' AND r.wait_time > @limit
ORDER BY r.wait_time DESC;
