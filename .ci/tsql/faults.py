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


FAULTS = [
    Fault("a word that is no T-SQL", "30_lines.sql", "SET NOCOUNT ON;", "SET NOCOUNT ONN;", "Incorrect syntax"),
    Fault("a column that a table has not", "50_append.sql", "n.Step, n.Joins, n.WaitsFor", "n.Stepp, n.Joins, n.WaitsFor", "Stepp"),
    Fault("a column that a table variable has not", "40_steps.sql", "t.Completed <> 0 OR t.Failed <> 0;\n\n    SELECT", "t.Completedd <> 0 OR t.Failed <> 0;\n\n    SELECT", "Completedd"),
    Fault("a variable that is not declared", "70_settle.sql", "g.Due, OwnerToken = NULL, Expiries = 0, RetryCount", "@when, OwnerToken = NULL, Expiries = 0, RetryCount", "@when"),
    Fault("a procedure's parameter that is missing", "90_upkeep.sql", "EXEC [dbo].[Outbox_LockLine] @Group = @group, @Topic = @topic, @Mode = N'Shared';\n                INSERT",
          "EXEC [dbo].[Outbox_LockLine] @Group = @group, @Topic = @topic;\n                INSERT", "@Mode"),
    Fault("a parameter that a procedure has not", "80_line.sql", "@Mode = N'Exclusive';", "@Modes = N'Exclusive';", "Modes"),
    Fault("a function that is none", "80_line.sql", "@waits = ISNULL((", "@waits = ISNULLED((", "ISNULLED"),
    Fault("a date part that is none", "60_claim.sql", "DATEADD(MICROSECOND, CAST(@Lease", "DATEADD(MICROSEC, CAST(@Lease", "MICROSEC"),
    Fault("an index of a column that is missing", "10_tables.sql", "(FinishedUtc) WHERE FinishedUtc", "(FinishedAt) WHERE FinishedUtc", "FinishedAt"),
    Fault("a hint of an index that is missing", "sqlCountMembers", "IX_OutboxJoinMember_Join", "IX_OutboxJoinMember_Joins", "IX_OutboxJoinMember_Joins"),
    Fault("an INSERT that gets too few columns", "sqlAddMember", "@message, @status", "@message", "an INSERT of 10 columns gets 9"),
    Fault("a UNION of unequal sides", "70_settle.sql", "UNION ALL SELECT Step, 'd' FROM", "UNION ALL SELECT Step FROM", "Union of 2 columns and 1"),
    Fault("hints that exclude each other", "sqlGroups", "(READCOMMITTEDLOCK)", "(READCOMMITTEDLOCK, ROWLOCK)", "error 1047"),
    Fault("READPAST that is refused", "sqlHasEnded", "READCOMMITTEDLOCK, READPAST", "HOLDLOCK, READPAST", "error 650"),
    Fault("a column that a derived table has not", "sqlStats", "SELECT MIN(n.Name)", "SELECT MIN(n.Names)", "Names"),
    Fault("an output column that a table has not", "70_settle.sql", "deleted.[Key], deleted.Step INTO @gone", "deleted.[Key], deleted.Steps INTO @gone", "Steps"),
    Fault("a procedure's parameter that a statement misspells", "sqlLockLine", "@Topic = @topic", "@Topics = @topic", "Topics"),
    Fault("a grant on what is missing", "grants.sql", "[Outbox_Sweep]", "[Outbox_Sweeper]", "Outbox_Sweeper"),
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
