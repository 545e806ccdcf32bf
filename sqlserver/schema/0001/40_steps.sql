SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO

-- Counts the new states of records that are steps of joins, as the last work of the transaction that
-- changed the records. It locks joins in the order of their ids, by an update, and members change
-- only under that lock. Returns the pending joins that it counted.
CREATE PROCEDURE [dbo].[Outbox_CountSteps]
    @Steps [dbo].[OutboxStep] READONLY
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
    DECLARE @change TABLE (Step BINARY(16) NOT NULL PRIMARY KEY, OpenBy INT NOT NULL, AckedBy INT NOT NULL, DeadBy INT NOT NULL);
    DECLARE @pair TABLE (JoinIdBytes BINARY(16) NOT NULL, Step BINARY(16) NOT NULL, PRIMARY KEY (JoinIdBytes, Step));
    DECLARE @join TABLE (Place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, JoinIdBytes BINARY(16) NOT NULL, Held BIT NOT NULL);
    DECLARE @moved TABLE (JoinIdBytes BINARY(16) NOT NULL, Step BINARY(16) NOT NULL, OldStatus TINYINT NOT NULL, NewStatus TINYINT NOT NULL,
        OpenRecords INT NOT NULL, AckedRecords INT NOT NULL, DeadRecords INT NOT NULL, PRIMARY KEY (JoinIdBytes, Step));
    DECLARE @total TABLE (JoinIdBytes BINARY(16) NOT NULL PRIMARY KEY, Completed INT NOT NULL, Failed INT NOT NULL);

    INSERT @change (Step, OpenBy, AckedBy, DeadBy)
        SELECT Step, SUM(CASE How WHEN 'r' THEN 1 ELSE -1 END), SUM(CASE How WHEN 'a' THEN 1 ELSE 0 END),
            SUM(CASE How WHEN 'd' THEN 1 WHEN 'r' THEN -1 ELSE 0 END)
        FROM @Steps WHERE Step IS NOT NULL GROUP BY Step;

    INSERT @pair (JoinIdBytes, Step) SELECT m.JoinIdBytes, m.Step FROM @change AS c JOIN [dbo].[OutboxJoinMember] AS m WITH (FORCESEEK) ON m.Step = c.Step;
    INSERT @join (JoinIdBytes, Held) SELECT DISTINCT JoinIdBytes, 0 FROM @pair ORDER BY JoinIdBytes;
    DECLARE @place INT = 1, @joins INT = (SELECT COUNT(*) FROM @join), @jid BINARY(16);
    WHILE @place <= @joins
    BEGIN
        SET @jid = (SELECT JoinIdBytes FROM @join WHERE Place = @place);
        UPDATE [dbo].[OutboxJoin] SET LastUpdatedUtc = LastUpdatedUtc WHERE JoinIdBytes = @jid AND Status = 0;
        IF @@ROWCOUNT > 0
            UPDATE @join SET Held = 1 WHERE Place = @place;
        SET @place = @place + 1;
    END

    INSERT @moved (JoinIdBytes, Step, OldStatus, NewStatus, OpenRecords, AckedRecords, DeadRecords)
        SELECT m.JoinIdBytes, m.Step, m.Status,
            CASE WHEN m.Reported = 1 THEN m.Status
                WHEN m.DeadRecords + c.DeadBy > 0 OR m.OpenRecords + c.OpenBy <= 0 AND m.AckedRecords + c.AckedBy = 0 THEN 2
                WHEN m.OpenRecords + c.OpenBy <= 0 THEN 1
                ELSE 0 END,
            m.OpenRecords + c.OpenBy, m.AckedRecords + c.AckedBy, m.DeadRecords + c.DeadBy
        FROM @join AS j JOIN @pair AS p ON p.JoinIdBytes = j.JoinIdBytes JOIN @change AS c ON c.Step = p.Step
        JOIN [dbo].[OutboxJoinMember] AS m WITH (FORCESEEK) ON m.JoinIdBytes = p.JoinIdBytes AND m.Step = p.Step
        WHERE j.Held = 1;

    UPDATE m SET Status = v.NewStatus, OpenRecords = v.OpenRecords, AckedRecords = v.AckedRecords, DeadRecords = v.DeadRecords
        FROM [dbo].[OutboxJoinMember] AS m WITH (FORCESEEK) JOIN @moved AS v ON v.JoinIdBytes = m.JoinIdBytes AND v.Step = m.Step;

    INSERT @total (JoinIdBytes, Completed, Failed)
        SELECT JoinIdBytes, SUM(CASE NewStatus WHEN 1 THEN 1 ELSE 0 END) - SUM(CASE OldStatus WHEN 1 THEN 1 ELSE 0 END),
            SUM(CASE NewStatus WHEN 2 THEN 1 ELSE 0 END) - SUM(CASE OldStatus WHEN 2 THEN 1 ELSE 0 END)
        FROM @moved GROUP BY JoinIdBytes;

    UPDATE j SET CompletedSteps = j.CompletedSteps + t.Completed, FailedSteps = j.FailedSteps + t.Failed, LastUpdatedUtc = @now
        FROM [dbo].[OutboxJoin] AS j WITH (FORCESEEK) JOIN @total AS t ON t.JoinIdBytes = j.JoinIdBytes WHERE t.Completed <> 0 OR t.Failed <> 0;

    SELECT JoinIdBytes FROM @total WHERE Completed <> 0 OR Failed <> 0;
END
GO
