-- Pages of lines. What a row of another kind has in the columns of a row is said at its SELECT.

-- name: page
-- Locks the line if @locks is 1, with a wait of @patience milliseconds, and then reads its page. The first result is whether the lock was granted (0 or
-- more), and now; the second has up to @due rows whose time has come; the third is the page, if the second is empty, and of one moment: its
-- rows are of five kinds. 0 says, as parked, whether rows of the topic wait for a first group; 1 is a note that does not block the claim; 2 a row
-- that it holds; 3 a ready row; 4 the state of a key. @free are the blockers that do not block; @keys says whether ready rows and keys are wanted.
DECLARE @freed TABLE (blocker NVARCHAR(40) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @rc INT = 0, @now BIGINT, @found BIGINT = 0, @resource NVARCHAR(255) = @lock;
INSERT @freed SELECT * FROM OPENJSON(@free) WITH (blocker NVARCHAR(40) N'$');
IF @locks = 1
	EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = @patience;
IF @rc < -1 OR @rc = -1 AND @patience > 0
	THROW 50901, N'outmill: the lock of a line was not to be had; the transaction may be repeated', 1;
SET @now = {p:now}();
SELECT @rc AS rc, @now AS now;
IF @rc >= 0
BEGIN
	SELECT {row} FROM (
		SELECT * FROM (SELECT TOP (@due) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 2
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS waiting
		UNION ALL SELECT * FROM (SELECT TOP (@due) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 3
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS delayed
		UNION ALL SELECT * FROM (SELECT TOP (@due) {row} FROM {p:records} AS r {free} WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 4
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at, r.seq) AS leased) AS r;
	SET @found = @@ROWCOUNT;
END
IF @rc >= 0 AND @found = 0
BEGIN
	WITH noted AS (SELECT TOP (@limit) a.name, a.blocker, a.head, a.look_at, a.looks, a.version FROM (
		SELECT b.name, b.blocker, b.head, b.look_at, b.looks, b.version FROM @freed AS f CROSS APPLY (
			SELECT TOP (@limit) n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) AS version FROM {p:notes} AS n WITH (FORCESEEK)
			WHERE n.grp = {group} AND n.topic = {topic} AND n.blocker = f.blocker ORDER BY n.head, n.name) AS b
		UNION SELECT l.name, l.blocker, l.head, l.look_at, l.looks, l.version FROM (
			SELECT TOP (10 * @limit + 1000) n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) AS version FROM {p:notes} AS n WITH (FORCESEEK)
			WHERE n.grp = {group} AND n.topic = {topic} AND n.look_at > 0 AND n.look_at <= @now ORDER BY n.look_at) AS l
		UNION SELECT n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) FROM {p:notes} AS n WITH (FORCESEEK)
			WHERE @keys = 1 AND n.grp = {group} AND n.topic = {topic} AND n.name >= N'q' AND n.name < N'r') AS a ORDER BY a.head, a.name),
	shares AS (SELECT CASE WHEN COUNT(*) < 2 THEN @limit WHEN COUNT(*) > @limit THEN 1 ELSE @limit / COUNT(*) END AS share FROM noted AS n
		WHERE n.name >= N'k' AND n.name < N'l'),
	held AS (SELECT h.* FROM noted AS n CROSS APPLY (
		SELECT TOP (CASE WHEN @keys = 1 AND n.name >= N'k' AND n.name < N'l' THEN (SELECT s.share FROM shares AS s) ELSE @limit END) {row}
		FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 1 AND r.under = n.name ORDER BY r.seq) AS h),
	ready AS (SELECT TOP (@limit) {row} FROM {p:records} AS r WITH (FORCESEEK) WHERE @keys = 1 AND r.grp = {group} AND r.topic = {topic} AND r.stage = 0
		ORDER BY r.seq),
	wanted AS (SELECT h.[key] FROM held AS h UNION SELECT y.[key] FROM ready AS y
		UNION SELECT SUBSTRING(n.name, 2, 255) FROM noted AS n WHERE n.name >= N'k' AND n.name < N'l')
	SELECT 0 AS kind, 0 AS line, {empty}, CASE WHEN EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = N'' AND r.topic = {topic}
		AND r.stage IN (0, 3)) THEN 1 ELSE 0 END AS parked, 0 AS processed_at, N'' AS processed_by
	UNION ALL SELECT 1, 0, n.head, {none}, n.name, N'', n.version, 0, 0, n.look_at, 0, 0, n.looks, 0, 0, n.blocker, N'', N'', {none}, {none}, 0, 0, N'' FROM noted AS n
	UNION ALL SELECT 2, 0, {columns} FROM held AS h
	UNION ALL SELECT 3, 0, {columns} FROM ready AS h
	UNION ALL SELECT 4, 0, s.waiting, {none}, k.[key], N'', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, N'', N'', {none}, {none}, 0, 0, N''
		FROM wanted AS k CROSS APPLY {p:key_state}({group}, {topic}, k.[key], {owner}, @now) AS s WHERE @keys = 1 AND k.[key] <> N'';
END

-- name: page_held
-- The page of a claim without an order, which locks rows and no line: the notes that do not block it, and the rows that they hold. It locks the rows, and
-- leaves out those that others have locked: the claim would wait for them while it has locked rows itself. Kinds 0, 1 and 2 are as in page.
DECLARE @freed TABLE (blocker NVARCHAR(40) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @noted TABLE (place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, name NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL,
	blocker NVARCHAR(40) COLLATE Latin1_General_100_BIN2 NOT NULL, head BIGINT NOT NULL, look_at BIGINT NOT NULL, looks INT NOT NULL, version BIGINT NOT NULL);
DECLARE @now BIGINT = {p:now}();
INSERT @freed SELECT * FROM OPENJSON(@free) WITH (blocker NVARCHAR(40) N'$');
SELECT 0 AS rc, @now AS now;
INSERT @noted (name, blocker, head, look_at, looks, version)
	SELECT TOP (@limit) a.name, a.blocker, a.head, a.look_at, a.looks, a.version FROM (
		SELECT b.name, b.blocker, b.head, b.look_at, b.looks, b.version FROM @freed AS f CROSS APPLY (
			SELECT TOP (@limit) n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) AS version FROM {p:notes} AS n WITH (FORCESEEK)
			WHERE n.grp = {group} AND n.topic = {topic} AND n.blocker = f.blocker ORDER BY n.head, n.name) AS b
		UNION SELECT l.name, l.blocker, l.head, l.look_at, l.looks, l.version FROM (
			SELECT TOP (10 * @limit + 1000) n.name, n.blocker, n.head, n.look_at, n.looks, CAST(n.version AS BIGINT) AS version FROM {p:notes} AS n WITH (FORCESEEK)
			WHERE n.grp = {group} AND n.topic = {topic} AND n.look_at > 0 AND n.look_at <= @now ORDER BY n.look_at) AS l) AS a ORDER BY a.head, a.name;
SELECT 0 AS kind, 0 AS line, {empty}, CASE WHEN EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = N'' AND r.topic = {topic}
	AND r.stage IN (0, 3)) THEN 1 ELSE 0 END AS parked, 0 AS processed_at, N'' AS processed_by
UNION ALL SELECT 1, 0, n.head, {none}, n.name, N'', n.version, 0, 0, n.look_at, 0, 0, n.looks, 0, 0, n.blocker, N'', N'', {none}, {none}, 0, 0, N'' FROM @noted AS n
UNION ALL SELECT 2, 0, {columns} FROM (SELECT h.* FROM @noted AS n CROSS APPLY (SELECT TOP (@limit) {row} FROM {p:records} AS r {free}
	WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 1 AND r.under = n.name ORDER BY r.seq) AS h) AS h;

-- name: pages
-- Pages of several lines, of one moment. Each item of @lines has its number from 0, the name of the line, and that of its lock; with @locks 1 those
-- of free lines are taken, without a wait. Kind 1 is a line of which a claim must look at more than the ready rows, or that another one has
-- locked; 3 and 4 are as in page.
DECLARE @line TABLE (line INT NOT NULL PRIMARY KEY, topic NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL, resource NVARCHAR(255) NOT NULL, busy BIT NOT NULL);
DECLARE @freed TABLE (blocker NVARCHAR(40) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @rc INT, @now BIGINT, @n INT = 0, @resource NVARCHAR(255);
INSERT @freed SELECT * FROM OPENJSON(@free) WITH (blocker NVARCHAR(40) N'$');
INSERT @line SELECT * FROM OPENJSON(@lines) WITH (line INT, topic NVARCHAR(260), resource NVARCHAR(255), busy BIT);
WHILE @locks = 1 AND EXISTS (SELECT 1 FROM @line AS l WHERE l.line = @n)
BEGIN
	SET @resource = (SELECT l.resource FROM @line AS l WHERE l.line = @n);
	EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
	IF @rc < -1
		THROW 50901, N'outmill: the lock of a line was not to be had; the transaction may be repeated', 1;
	IF @rc < 0
		UPDATE l SET busy = 1 FROM @line AS l WHERE l.line = @n;
	SET @n = @n + 1;
END
SET @now = {p:now}();
WITH looked AS (SELECT l.line, l.topic, CASE WHEN l.busy = 1
	OR EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic = l.topic AND r.stage = 2 AND r.wake_at > 0 AND r.wake_at <= @now)
	OR EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic = l.topic AND r.stage = 3 AND r.wake_at > 0 AND r.wake_at <= @now)
	OR EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic = l.topic AND r.stage = 4 AND r.wake_at > 0 AND r.wake_at <= @now)
	OR EXISTS (SELECT 1 FROM @freed AS f JOIN {p:notes} AS n WITH (FORCESEEK)
		ON n.grp = {group} AND n.topic = l.topic AND n.blocker = f.blocker)
	OR EXISTS (SELECT 1 FROM {p:notes} AS n WITH (FORCESEEK) WHERE n.grp = {group} AND n.topic = l.topic AND n.look_at > 0 AND n.look_at <= @now)
	OR @keys = 1 AND EXISTS (SELECT 1 FROM {p:notes} AS n WITH (FORCESEEK) WHERE n.grp = {group} AND n.topic = l.topic AND n.name >= N'q' AND n.name < N'r')
	OR @keys = 0 AND EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic = l.topic AND r.stage = 1 AND r.hold = 1)
	OR EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = N'' AND r.topic = l.topic AND r.stage IN (0, 3))
	THEN 1 ELSE 0 END AS alone FROM @line AS l),
ready AS (SELECT l.line, h.* FROM looked AS l CROSS APPLY (SELECT TOP (@limit) {row} FROM {p:records} AS r {free}
	WHERE r.grp = {group} AND r.topic = l.topic AND r.stage = 0 ORDER BY r.seq) AS h WHERE l.alone = 0),
wanted AS (SELECT DISTINCT h.line, h.topic, h.[key] FROM ready AS h WHERE @keys = 1 AND h.[key] <> N'')
SELECT 1 AS kind, l.line, {empty}, 0 AS parked, 0 AS processed_at, N'' AS processed_by FROM looked AS l WHERE l.alone = 1
UNION ALL SELECT 3, h.line, {columns} FROM ready AS h
UNION ALL SELECT 4, k.line, s.waiting, {none}, k.[key], N'', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, N'', N'', {none}, {none}, 0, 0, N''
	FROM wanted AS k CROSS APPLY {p:key_state}({group}, k.topic, k.[key], {owner}, @now) AS s;

-- name: key_states
-- The states of the keys of a line, as kind 4 of page.
DECLARE @asked TABLE ([key] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @now BIGINT = {p:now}();
INSERT @asked SELECT * FROM OPENJSON(@names) WITH ([key] NVARCHAR(255) N'$');
SELECT 4 AS kind, 0 AS line, s.waiting, {none} AS id, k.[key], N'' AS tenant_id, s.held, 0 AS size, 0 AS stage, s.parked, s.due, 0 AS expires_at, 0 AS attempts, 0 AS claims,
	0 AS expiries, s.other, N'' AS worker, N'' AS under, {none} AS step, {none} AS waits_for, 0 AS parked_row, 0 AS processed_at, N'' AS processed_by
FROM @asked AS k CROSS APPLY {p:key_state}({group}, {topic}, k.[key], {owner}, @now) AS s;

-- name: whole
-- The state of all rows of a line: another owner with a lease, the first row that waits, and the first that is due and not admitted.
DECLARE @now BIGINT = {p:now}();
SELECT ISNULL((SELECT TOP (1) r.owner FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 4 AND r.wake_at > 0
		AND r.owner <> {owner} AND (r.wake_at > @now OR r.expires_at = 0 OR r.expires_at > @now)), N'') AS other,
	ISNULL((SELECT MIN(r.seq) FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic = {topic} AND r.stage = 2 AND r.wake_at > 0
		AND (r.expires_at = 0 OR r.expires_at > @now)), {last}) AS waiting,
	ISNULL((SELECT MIN(r.seq) FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic = {topic} AND r.stage IN (2, 3, 4) AND r.wake_at > 0
		AND r.wake_at <= @now AND (r.stage <> 4 OR r.owner = {owner}) AND (r.expires_at = 0 OR r.expires_at > @now)), {last}) AS due;

-- name: due
-- The lines of a group that may have something to claim, those first whose rows have been due longest. @free are the blockers of notes that do not
-- block, @held says whether rows that are held under keys count, @lines are the names of the lines, or NULL for all. One search of an index
-- finds each line, so the cost grows with the lines and not with their rows.
DECLARE @line TABLE (topic NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY WITH (IGNORE_DUP_KEY = ON));
DECLARE @freed TABLE (blocker NVARCHAR(40) COLLATE Latin1_General_100_BIN2 NOT NULL);
DECLARE @topic NVARCHAR(260);
INSERT @freed SELECT * FROM OPENJSON(@free) WITH (blocker NVARCHAR(40) N'$');
IF @lines IS NOT NULL
	INSERT @line SELECT * FROM OPENJSON(@lines) WITH (topic NVARCHAR(260) N'$');
ELSE
BEGIN
	SET @topic = (SELECT TOP (1) r.topic FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.stage = 0 ORDER BY r.topic);
	WHILE @topic IS NOT NULL
	BEGIN
		INSERT @line (topic) VALUES (@topic);
		SET @topic = (SELECT TOP (1) r.topic FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic > @topic AND r.stage = 0 ORDER BY r.topic);
	END
	SET @topic = (SELECT TOP (1) r.topic FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.wake_at > 0 ORDER BY r.topic);
	WHILE @topic IS NOT NULL
	BEGIN
		INSERT @line (topic) VALUES (@topic);
		SET @topic = (SELECT TOP (1) r.topic FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic > @topic AND r.wake_at > 0 ORDER BY r.topic);
	END
	SET @topic = (SELECT TOP (1) r.topic FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.stage = 1 ORDER BY r.topic);
	WHILE @held = 1 AND @topic IS NOT NULL
	BEGIN
		INSERT @line (topic) VALUES (@topic);
		SET @topic = (SELECT TOP (1) r.topic FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic > @topic AND r.stage = 1 ORDER BY r.topic);
	END
	SET @topic = (SELECT TOP (1) n.topic FROM {p:notes} AS n WITH (FORCESEEK) WHERE n.grp = {group} ORDER BY n.topic);
	WHILE @topic IS NOT NULL
	BEGIN
		INSERT @line (topic) VALUES (@topic);
		SET @topic = (SELECT TOP (1) n.topic FROM {p:notes} AS n WITH (FORCESEEK) WHERE n.grp = {group} AND n.topic > @topic ORDER BY n.topic);
	END
END
SELECT s.topic FROM (SELECT l.topic, (SELECT MIN(v.since) FROM (VALUES
		((SELECT TOP (1) CASE WHEN r.next_at > r.created_at THEN r.next_at ELSE r.created_at END FROM {p:records} AS r WITH (FORCESEEK)
			WHERE r.grp = {group} AND r.topic = l.topic AND r.stage = 0 ORDER BY r.seq)),
		((SELECT TOP (1) r.wake_at FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic = l.topic AND r.stage = 2
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at)),
		((SELECT TOP (1) r.wake_at FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic = l.topic AND r.stage = 3
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at)),
		((SELECT TOP (1) r.wake_at FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic = l.topic AND r.stage = 4
			AND r.wake_at > 0 AND r.wake_at <= @now ORDER BY r.wake_at)),
		((SELECT TOP (1) CAST(0 AS BIGINT) FROM @freed AS f JOIN {p:notes} AS n WITH (FORCESEEK)
			ON n.grp = {group} AND n.topic = l.topic AND n.blocker = f.blocker)),
		((SELECT TOP (1) n.look_at FROM {p:notes} AS n WITH (FORCESEEK) WHERE n.grp = {group} AND n.topic = l.topic
			AND n.look_at > 0 AND n.look_at <= @now ORDER BY n.look_at)),
		((SELECT TOP (1) CASE WHEN r.next_at > r.created_at THEN r.next_at ELSE r.created_at END FROM {p:records} AS r WITH (FORCESEEK)
			WHERE @held = 1 AND r.grp = {group} AND r.topic = l.topic AND r.stage = 1 AND r.hold = 1 ORDER BY r.seq))) AS v (since)) AS since
	FROM @line AS l) AS s WHERE s.since IS NOT NULL ORDER BY s.since, s.topic;

-- name: quiet
-- Whether a group has nothing that is ready, held, or comes later, and nothing waits for a first group: then due finds nothing, also after a pause
-- has ended. The version and the pauses are what the process has to know.
SELECT m.version, m.compatible, m.pauses, CAST(CASE WHEN EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.stage = 0)
	OR EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.stage = 1)
	OR EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.wake_at > 0)
	OR EXISTS (SELECT 1 FROM {p:notes} AS n WITH (FORCESEEK) WHERE n.grp = {group})
	OR EXISTS (SELECT 1 FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = N'' AND r.topic > N'' AND r.stage IN (0, 3))
	THEN 0 ELSE 1 END AS BIT) AS quiet FROM {p:meta} AS m WHERE m.only_row = 1;

-- name: lines_of
-- The lines of all rows of a group.
DECLARE @line TABLE (topic NVARCHAR(260) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY WITH (IGNORE_DUP_KEY = ON));
DECLARE @topic NVARCHAR(260) = (SELECT TOP (1) r.topic FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.stage = 0 ORDER BY r.topic);
WHILE @topic IS NOT NULL
BEGIN
	INSERT @line (topic) VALUES (@topic);
	SET @topic = (SELECT TOP (1) r.topic FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic > @topic AND r.stage = 0 ORDER BY r.topic);
END
SET @topic = (SELECT TOP (1) r.topic FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.wake_at > 0 ORDER BY r.topic);
WHILE @topic IS NOT NULL
BEGIN
	INSERT @line (topic) VALUES (@topic);
	SET @topic = (SELECT TOP (1) r.topic FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic > @topic AND r.wake_at > 0 ORDER BY r.topic);
END
SET @topic = (SELECT TOP (1) r.topic FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.stage = 1 ORDER BY r.topic);
WHILE @topic IS NOT NULL
BEGIN
	INSERT @line (topic) VALUES (@topic);
	SET @topic = (SELECT TOP (1) r.topic FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic > @topic AND r.stage = 1 ORDER BY r.topic);
END
SET @topic = (SELECT TOP (1) r.topic FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.stage > 4 ORDER BY r.topic);
WHILE @topic IS NOT NULL
BEGIN
	INSERT @line (topic) VALUES (@topic);
	SET @topic = (SELECT TOP (1) r.topic FROM {p:records} AS r WITH (FORCESEEK) WHERE r.grp = {group} AND r.topic > @topic AND r.stage > 4 ORDER BY r.topic);
END
SELECT l.topic FROM @line AS l;

-- name: pausing
-- The blockers of the notes of a group that are pauses.
DECLARE @found TABLE (blocker NVARCHAR(40) NOT NULL);
DECLARE @blocker NVARCHAR(40) = (SELECT TOP (1) n.blocker FROM {p:notes} AS n WITH (FORCESEEK) WHERE n.grp = {group} AND n.paused = 1 ORDER BY n.blocker);
WHILE @blocker IS NOT NULL
BEGIN
	INSERT @found (blocker) VALUES (@blocker);
	SET @blocker = (SELECT TOP (1) n.blocker FROM {p:notes} AS n WITH (FORCESEEK) WHERE n.grp = {group} AND n.blocker > @blocker AND n.paused = 1 ORDER BY n.blocker);
END
SELECT f.blocker FROM @found AS f;
