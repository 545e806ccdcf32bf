-- The rights of a program that appends, works and tidies up, and does not make
-- the schema: to read and change the tables, to call the procedures, and to pass
-- sets to them. The names are the defaults, and the role is [outmill]: see
-- Store.Grants.
GRANT SELECT, INSERT, UPDATE, DELETE ON [dbo].[OutboxMeta] TO [outmill];
GRANT SELECT, INSERT, UPDATE, DELETE ON [dbo].[Outbox] TO [outmill];
GRANT SELECT, INSERT, UPDATE, DELETE ON [dbo].[OutboxLane] TO [outmill];
GRANT SELECT, INSERT, UPDATE, DELETE ON [dbo].[OutboxGroup] TO [outmill];
GRANT SELECT, INSERT, UPDATE, DELETE ON [dbo].[OutboxWorker] TO [outmill];
GRANT SELECT, INSERT, UPDATE, DELETE ON [dbo].[OutboxEnding] TO [outmill];
GRANT SELECT, INSERT, UPDATE, DELETE ON [dbo].[OutboxDedup] TO [outmill];
GRANT SELECT, INSERT, UPDATE, DELETE ON [dbo].[OutboxJoin] TO [outmill];
GRANT SELECT, INSERT, UPDATE, DELETE ON [dbo].[OutboxJoinMember] TO [outmill];
GRANT EXECUTE ON TYPE::[dbo].[OutboxNew] TO [outmill];
GRANT EXECUTE ON TYPE::[dbo].[OutboxLease] TO [outmill];
GRANT EXECUTE ON TYPE::[dbo].[OutboxId] TO [outmill];
GRANT EXECUTE ON TYPE::[dbo].[OutboxName] TO [outmill];
GRANT EXECUTE ON TYPE::[dbo].[OutboxNote] TO [outmill];
GRANT EXECUTE ON TYPE::[dbo].[OutboxDecision] TO [outmill];
GRANT EXECUTE ON TYPE::[dbo].[OutboxNewMember] TO [outmill];
GRANT EXECUTE ON TYPE::[dbo].[OutboxStep] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_LockLine] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_LockDedupKey] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_ShareLines] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Hold] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_CountSteps] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Append] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Due] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Claim] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Ack] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Abandon] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Snooze] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Release] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Fail] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Extend] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_LineRead] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_LineOpen] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_LineLook] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_LineSettle] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Reap] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Expire] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Delete] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Requeue] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Adopt] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_DropRecords] TO [outmill];
GRANT EXECUTE ON [dbo].[Outbox_Sweep] TO [outmill];
