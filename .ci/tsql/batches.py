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
    "BIGINT": """limit now from until stage hold want size patience at made keep claim due keys locks held leased routes pauses length
        most seconds""",
    "VARBINARY(MAX)": "id step join payload entry",
    "NVARCHAR(MAX)": """group topic key owner worker ids rows notes entries lock kind value prefix free lines names metadata name tables
        rights kinds""",
}
OTHERWISE = {("insert", "rows"): "[dbo].[OutboxNew] READONLY", ("attach", "join"): "NVARCHAR(MAX)"}
FOLDER = "sqlserver/internal/driver/"


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


def program(repository, free_variables):
    """The schema, the grants, and the statements, each as a procedure with the parameters that the text does not declare itself."""
    found = printed(repository)
    for text in found["schema"]:
        yield Batch(FOLDER + "schema/0001_tables.sql", 1, text)
    # DacFx takes one statement in a batch.
    for text in found["grants"]:
        yield Batch(FOLDER + "grants.sql", 1, text)
    for name, text in found["statements"].items():
        typed = [f"@{p} {type_of(name.partition(',')[0], p)}" for p in free_variables(text)]
        yield Batch(FOLDER + "statements", 1, f"CREATE PROCEDURE [dbo].[program {name}] {', '.join(typed)} AS BEGIN {text}\nEND", name)


OLD_OUTBOX = """CREATE TABLE [dbo].[OldOutbox] (Id UNIQUEIDENTIFIER PRIMARY KEY, Topic NVARCHAR(255) NOT NULL, Payload NVARCHAR(MAX) NOT NULL,
    CreatedAt DATETIMEOFFSET NOT NULL, Status TINYINT NOT NULL, LockedUntil DATETIME2(3) NULL, OwnerToken UNIQUEIDENTIFIER NULL,
    MessageId UNIQUEIDENTIFIER NOT NULL, CorrelationId NVARCHAR(255) NULL, DueTimeUtc DATETIMEOFFSET NULL)"""


def documented(repository):
    """The statement of docs/upgrading.md that moves the rows of an earlier outbox, as a procedure, and the table of that outbox."""
    file = repository / "docs/upgrading.md"
    text = re.search(r"(?s)```sql\n(BEGIN TRANSACTION;.*?)```", file.read_text(encoding="utf-8")).group(1)
    text = text.replace("[dbo].[Outbox]", "[dbo].[OldOutbox]").replace("[mill].", "[dbo].")
    name = str(file.relative_to(repository))
    yield Batch(name, 1, OLD_OUTBOX)
    yield Batch(name, 1, f"CREATE PROCEDURE [dbo].[move old outbox] AS BEGIN {text}\nEND")


def type_of(statement, parameter):
    for kind, names in PARAMETERS.items():
        if parameter in names.split():
            return OTHERWISE.get((statement, parameter), kind)
    raise ValueError(f"{statement} has a parameter @{parameter}, whose type .ci/tsql/batches.py does not say")


def printed(repository):
    """A test writes the statements to a file, as SQL Server gets them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "statements.json"
        env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
        subprocess.run(["go", "test", "-count=1", "-run", "^TestStatements$", "./" + FOLDER],
                       cwd=repository, env={**env, "OUTMILL_STATEMENTS_FILE": str(file)}, check=True, stdout=subprocess.DEVNULL)
        return json.loads(file.read_text(encoding="utf-8"))
