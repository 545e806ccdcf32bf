-- The rights of a program that appends, claims, settles, runs the janitor and operates, and does not create the schema.
GRANT SELECT, UPDATE ON {p:meta} TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {p:records} TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {p:notes} TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {p:entries} TO {role};
GRANT EXECUTE ON {p:now} TO {role};
GRANT SELECT ON {p:key_state} TO {role};
GRANT EXECUTE ON TYPE::{p:new_records} TO {role};
-- The procedures, and the type of their leases, for programs in other languages. The Go API does not call them.
GRANT EXECUTE ON TYPE::{p:leases} TO {role};
GRANT EXECUTE ON {p:claim} TO {role};
GRANT EXECUTE ON {p:ack} TO {role};
GRANT EXECUTE ON {p:abandon} TO {role};
GRANT EXECUTE ON {p:fail} TO {role};
GRANT EXECUTE ON {p:reap} TO {role};
