-- What the upkeep of the log asks of the driver: see internal/segments.

-- name: log_hold
-- Keeps the registrations as they are until the end of the transaction.
SELECT {p:now}() FROM {p:events} FOR SHARE

-- name: log_alone
-- The same for a transaction that may change them.
SELECT 1 FROM {p:events} FOR UPDATE

-- name: resting_of
-- Whether the stores of several schemas rest: see the function.
SELECT {p:resting_of}($1::pg_catalog.text[], $2::pg_catalog.text[])

-- name: quiet
-- Whether a look would find nothing: see the function.
SELECT coalesce({p:quiet}($1::pg_catalog.text, $2::pg_catalog.int4, $3::pg_catalog.int8, $4::pg_catalog.text[], $5::pg_catalog.text[],
	$6::pg_catalog.text[], $7::pg_catalog.text::pg_catalog.int8[], $8::pg_catalog.text::pg_catalog.int8[], $9::pg_catalog.text[]), false)
