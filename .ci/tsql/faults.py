"""Faults to plant in a copy of the batches, so that a check that finds nothing is known to look."""
from dataclasses import dataclass, replace

import tools
from batches import Batch


@dataclass
class Fault:
    what: str
    file: str  # the end of the file's name, or the statement's name
    old: str
    new: str
    says: str  # part of what is to be reported


SCHEMA, GRANTS = "0001_tables.sql", "grants.sql"
FAULTS = [
    Fault("a word that is no T-SQL", "put", "WHILE 1 = 1", "WHILES 1 = 1", "Incorrect syntax"),
    Fault("a column that a table has not", "insert", "n.due_at, n.step", "n.due_on, n.step", "due_on"),
    Fault("a column that a table variable has not", "take", "WHERE u.done = 0 AND e.at > @now", "WHERE u.dones = 0 AND e.at > @now", "dones"),
    Fault("a variable that is not declared", SCHEMA, "next_at = @now + ISNULL(l.delay, 0), owner", "next_at = @when + ISNULL(l.delay, 0), owner", "@when"),
    Fault("a procedure's parameter that is missing", "add", "@Resource = @resource, @LockMode = N'Exclusive'", "@LockMode = N'Exclusive'", "@Resource"),
    Fault("a parameter that a procedure has not", "page", "@LockTimeout = @patience", "@LockTimeouts = @patience", "LockTimeouts"),
    Fault("a function that is none", "load", "ISNULL(r.joins, N'')", "ISNULLED(r.joins, N'')", "ISNULLED"),
    Fault("a date part that is none", SCHEMA, "DATEDIFF_BIG(MICROSECOND", "DATEDIFF_BIG(MICROSEC", "MICROSEC"),
    Fault("an index of a column that is missing", SCHEMA, "(processed_at, seq)", "(processed_on, seq)", "processed_on"),
    Fault("an INSERT that gets too few columns", "put_note", "@made + @keep, @made, @value)", "@made + @keep, @value)", "an INSERT of 6 columns gets 5"),
    Fault("a UNION of unequal sides", "pages", "s.other, N'', N'', CAST(0x AS BINARY(16)), CAST(0x AS BINARY(16)), 0, 0, N''", "s.other, N'', N'', CAST(0x AS BINARY(16)), CAST(0x AS BINARY(16)), 0, 0", "Union of 23 columns and 22"),
    Fault("hints that exclude each other", "find_locked", "(UPDLOCK, ROWLOCK, FORCESEEK)", "(UPDLOCK, ROWLOCK, PAGLOCK, FORCESEEK)", "error 1047"),
    Fault("READPAST that is refused", "adopt", "UPDLOCK, READPAST", "HOLDLOCK, READPAST", "error 650"),
    Fault("a column that a derived table has not", "due", "s.since IS NOT NULL ORDER BY", "s.sinces IS NOT NULL ORDER BY", "sinces"),
    Fault("an output column that a table has not", "delete", "deleted.seq INTO @written", "deleted.seqs INTO @written", "seqs"),
    Fault("an output of too many columns", "ack", "deleted.[key] INTO @gone", "deleted.[key], deleted.seq INTO @gone", "OUTPUT of 4 columns INTO 3"),
    Fault("a column of a view that a table has not", SCHEMA, "r.traceparent, r.tracestate, r.dedup_key, r.joins, r.size", "r.traceparent, r.tracestates, r.dedup_key, r.joins, r.size", "tracestates"),
    Fault("a grant on what is missing", GRANTS, "[Outbox_Reap]", "[Outbox_Reaper]", "Outbox_Reaper"),
]


def plant(batches):
    """A copy of the batches with all faults, each with the batch that has it."""
    copy, planted = [replace(b) for b in batches], []
    for fault in FAULTS:
        of = next((b for b in copy if fault.old in b.text and (b.name == fault.file or b.file.endswith(fault.file))), None)
        if of is None:
            raise ValueError(f"cannot plant {fault.what}: {fault.file} has no {fault.old!r}")
        of.text = of.text.replace(fault.old, fault.new, 1)
        planted.append((fault, of))
    return copy, planted


def unreported(planted, findings):
    """The faults that no finding is about."""
    for fault, batch in planted:
        last = batch.line + batch.text.count("\n")
        if not any(f.name == batch.name and f.file == batch.file and batch.line <= f.line <= last and fault.says in f.message for f in findings):
            yield fault


def misspell(batches):
    """A copy in which the last column of each statement has a name that no column has, with these names and
    their places. The binder passes over all that follows what it does not know, and does not say so."""
    copy, names = [], {}
    for batch in batches:
        text = batch.text
        for reference in reversed(last_columns(text) if "CREATE PROCEDURE" in text else []):
            name = f"missing{len(names)}"
            names[name] = f"{batch.file}:{batch.at(text.count(chr(10), 0, reference.StartOffset) + 1)}", batch.name, reference.Value
            text = text[: reference.StartOffset] + f"[{name}]" + text[reference.StartOffset + reference.FragmentLength :]
        copy.append(replace(batch, text=text))
    return copy, names


def last_columns(text):
    """For each statement the name in its last reference to a column, in the order of the text."""
    tree, _ = tools.parsed(text)
    last, skip, todo = {}, set(), [(tree, tree)]
    while todo:
        node, of = todo.pop()
        kind = node.GetType().Name
        if kind.endswith("Statement"):
            of = node
        if kind == "FunctionCall" and node.FunctionName.Value.upper().startswith("DATE"):
            skip.add(node.Parameters[0].StartOffset)  # a part of a date, which is no column
        if kind == "ColumnReferenceExpression" and node.MultiPartIdentifier is not None and node.StartOffset not in skip:
            known = last.get(of.StartOffset)
            if known is None or known.StartOffset < node.StartOffset:
                last[of.StartOffset] = node
        todo.extend((part, of) for part in tools.parts(node))
    names = [n.MultiPartIdentifier.Identifiers[n.MultiPartIdentifier.Count - 1] for n in last.values()]
    return sorted(names, key=lambda n: n.StartOffset)
