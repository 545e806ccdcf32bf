-- What the upkeep of the log asks of the driver: see internal/segments.

-- name: log_hold
-- Keeps the registrations as they are until the end of the transaction.
SELECT stamp, {p:now}() FROM {p:events} FOR SHARE

-- name: log_readings
-- The history of the registrations.
SELECT number, grp, topics, takes, ended, swept, dropping, begin_pos, begin_seen::text, end_pos, coalesce(end_seen::text, '') FROM {p:readings} ORDER BY number
