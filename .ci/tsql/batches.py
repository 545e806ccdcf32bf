"""What is checked: the batches of the schema, the grants, and the statements of the program."""
import json
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

# The types that the driver declares for the parameters of the program's statements.
# A parameter that is not here is reported.
PARAMETERS = {
    "BIGINT": "before changed limit each micros seconds most ttl status quorum expected open acked dead completed failed version",
    "BIT": "all any pending complete finished hold",
    "NVARCHAR(MAX)": """joins join step joinid bytes message metadata reason policy grouping group topic worker
        selection include exclude after at of name consumer key type correlation id state
        ids tenant error since until others inGroup inTopic actor action command contract contractVersion details skipped problems rights""",
}
OTHERWISE = {("sqlStartJoin", "after"): "BIGINT"}

# The same of the driver of package engine (sqlserver/internal/next).
DRIVERS = {
    "BIGINT": """limit now from until stage hold want size patience at made keep claim due keys locks held leased routes pauses length""",
    "VARBINARY(MAX)": "id step join payload entry",
    "NVARCHAR(MAX)": "group topic key owner worker ids rows notes entries lock kind value prefix free lines names metadata name tables",
}
DRIVERS_OTHERWISE = {("insert", "rows"): "[dbo].[outbox_new_records] READONLY", ("attach", "join"): "NVARCHAR(MAX)"}


@dataclass
class Batch:
    file: str
    line: int  # where the text begins
    text: str
    name: str = ""  # of a statement of the program

    def at(self, line):
        """The line of the file. A statement of the program is made of pieces: its place is that of its declaration."""
        return self.line if self.name else self.line + line - 1

    def quote(self, line):
        lines = self.text.splitlines()
        return lines[line - 1].strip()[:100] if self.name and 0 < line <= len(lines) else ""


def schema(repository):
    for file in sorted(repository.glob("sqlserver/schema/*/*.sql")):
        name, line = str(file.relative_to(repository)), 1
        for text in re.split(r"(?m)^GO\n", file.read_text(encoding="utf-8")):
            if text.strip():
                yield Batch(name, line, text)
            line += text.count("\n") + 1


def grants(repository):
    """DacFx takes one statement in a batch."""
    file = repository / "sqlserver/grants.sql"
    for line, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if text.startswith("GRANT "):
            yield Batch(str(file.relative_to(repository)), line, text)


def program(repository, free_variables):
    """The statements, each as a procedure with the parameters that the text does not declare itself."""
    places = dict(declarations(repository))
    for name, text in printed(repository).items():
        of = name.partition(",")[0]
        typed = [f"@{p} {type_of(of, p)}" for p in free_variables(text)]
        yield Batch(*places[of], f"CREATE PROCEDURE [dbo].[program {name}] {', '.join(typed)} AS BEGIN {text}\nEND", name)


def driver(repository, free_variables):
    """The schema and the statements of the driver of package engine, whose tables have other names."""
    folder = "sqlserver/internal/next/"
    found = printed(repository, "./sqlserver/internal/next", "^TestStatements$")
    for text in found["schema"]:
        yield Batch(folder + "schema/0001_tables.sql", 1, text)
    for name, text in found["statements"].items():
        typed = [f"@{p} {drivers_type_of(name.partition(',')[0], p)}" for p in free_variables(text)]
        yield Batch(folder + "statements", 1, f"CREATE PROCEDURE [dbo].[driver {name}] {', '.join(typed)} AS BEGIN {text}\nEND", f"driver {name}")


def drivers_type_of(statement, parameter):
    for kind, names in DRIVERS.items():
        if parameter in names.split():
            return DRIVERS_OTHERWISE.get((statement, parameter), kind)
    raise ValueError(f"{statement} has a parameter @{parameter}, whose type .ci/tsql/batches.py does not say")


OLD_OUTBOX = """CREATE TABLE [dbo].[OldOutbox] (Id UNIQUEIDENTIFIER PRIMARY KEY, Topic NVARCHAR(255) NOT NULL, Payload NVARCHAR(MAX) NOT NULL,
    CreatedAt DATETIMEOFFSET NOT NULL, Status TINYINT NOT NULL, LockedUntil DATETIME2(3) NULL, OwnerToken UNIQUEIDENTIFIER NULL,
    MessageId UNIQUEIDENTIFIER NOT NULL, CorrelationId NVARCHAR(255) NULL, DueTimeUtc DATETIMEOFFSET NULL)"""


def documented(repository):
    """The statement of docs/upgrading.md that moves the rows of an earlier outbox, as a procedure, and the table of that outbox."""
    file = repository / "docs/upgrading.md"
    text = re.search(r"(?s)```sql\n(BEGIN TRANSACTION;.*?)```", file.read_text(encoding="utf-8")).group(1)
    text = text.replace("[dbo].[Outbox]", "[dbo].[OldOutbox]").replace("[mill].[Outbox]", "[dbo].[Outbox]")
    name = str(file.relative_to(repository))
    yield Batch(name, 1, OLD_OUTBOX)
    yield Batch(name, 1, f"CREATE PROCEDURE [dbo].[move old outbox] AS BEGIN {text}\nEND")


def type_of(statement, parameter):
    for kind, names in PARAMETERS.items():
        if parameter in names.split():
            return OTHERWISE.get((statement, parameter), kind)
    raise ValueError(f"{statement} has a parameter @{parameter}, whose type .ci/tsql/batches.py does not say")


def declarations(repository):
    for file in sorted(repository.glob("sqlserver/*.go")):
        for line, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            found = re.match(r"\s*(?:var |const )?(sql[A-Z]\w*)\s*=", text)
            if found:
                yield found[1], (str(file.relative_to(repository)), line)


def printed(repository, package="./sqlserver", test="^TestStore_Statements/each_statement_of_the_program_is_listed$"):
    """A test writes the statements to a file, as SQL Server gets them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "statements.json"
        env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
        subprocess.run(["go", "test", "-count=1", "-run", test, package],
                       cwd=repository, env={**env, "OUTMILL_STATEMENTS_FILE": str(file)}, check=True, stdout=subprocess.DEVNULL)
        return json.loads(file.read_text(encoding="utf-8"))
