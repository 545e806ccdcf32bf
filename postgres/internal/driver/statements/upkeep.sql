-- What the upkeep of the log asks of the driver: see internal/segments.

-- name: log_hold
-- Keeps the registrations as they are until the end of the transaction.
SELECT {p:now}() FROM {p:events} FOR SHARE

-- name: log_alone
-- The same for a transaction that may change them.
SELECT 1 FROM {p:events} FOR UPDATE
