-- name: state
-- What every transaction begins with. Every topic is larger than '', and every group at least '': without a seek the server may read the whole
-- table where there is nothing.
SELECT m.version, m.compatible, m.routes, m.pauses, {p:now}() AS now,
	CAST(CASE WHEN EXISTS (SELECT 1 FROM {p:notes} AS n) THEN 1 ELSE 0 END AS BIT) AS notes,
	CAST(CASE WHEN EXISTS (SELECT 1 FROM {p:notes} AS n WITH (FORCESEEK) WHERE n.grp >= N'' AND n.paused = 1) THEN 1 ELSE 0 END AS BIT) AS paused,
	CAST(CASE WHEN EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = N'' AND r.topic > N'' AND r.stage IN (0, 3)) THEN 1 ELSE 0 END AS BIT) AS unrouted
FROM {p:meta} AS m WHERE m.only_row = 1;

-- name: bump
-- Changes the generations, and locks them until the transaction ends. They come from the clock, so that a replica which lacks the last commits
-- gives no generation that a process knows.
UPDATE {p:meta} SET routes = CASE WHEN @routes = 0 THEN routes WHEN routes < {p:now}() THEN {p:now}() ELSE routes + 1 END,
	pauses = CASE WHEN @pauses = 0 THEN pauses WHEN pauses < {p:now}() THEN {p:now}() ELSE pauses + 1 END WHERE only_row = 1;
SELECT m.routes, m.pauses FROM {p:meta} AS m WITH (UPDLOCK) WHERE m.only_row = 1;

-- name: save
-- The beginning of a call in a caller's transaction.
SAVE TRANSACTION outmill;

-- name: undo
-- What such a call has done is undone if it fails. An error may have ended the transaction, or left it only to be rolled back.
IF @@TRANCOUNT > 0 AND XACT_STATE() = 1
	ROLLBACK TRANSACTION outmill;

-- name: prove
-- Nothing: whatever is sent in a caller's transaction proves first that there is one.
SELECT 1 AS proven;
