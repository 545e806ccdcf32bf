"""The checks. Each takes batches and returns findings."""
import re
from dataclasses import dataclass

import clr
import System
from Microsoft.SqlServer.Dac.Model import SqlServerVersion, TSqlModel, TSqlModelOptions
from Microsoft.SqlServer.Management.SqlParser.Binder import BinderProvider, BindMode
from Microsoft.SqlServer.Management.SqlParser.Common import DatabaseCompatibilityLevel, TransactSqlVersion
from Microsoft.SqlServer.Management.SqlParser.Metadata import CollationInfo
from Microsoft.SqlServer.Management.SqlParser.MetadataProvider import MetadataFactory, MetadataProviderBase
from Microsoft.SqlServer.Management.SqlParser.Parser import Parser, ParseOptions, ParseResult
from Microsoft.SqlServer.TransactSql import ScriptDom
from System.Collections.Generic import List
from System.IO import StringReader

from batches import Batch

# What a tool says wrongly, and why it is no fault.
NO_FAULTS = {
    "Incorrect syntax near OPTIMIZE_FOR_SEQUENTIAL_KEY": "SQL Server 2019 has the option; this parser is some months older",
    "Invalid collation 'Latin1_General_100_BIN2_UTF8'": "SQL Server 2019 has the collation; this parser is some months older",
}

# The parts of the server that the store names, which the binder has no metadata of.
SERVER = [Batch("the server", 1, text) for text in (
    """CREATE PROCEDURE [sys].[sp_getapplock] @Resource NVARCHAR(255), @LockMode VARCHAR(32), @LockOwner VARCHAR(32) = 'Transaction',
        @LockTimeout INT = NULL, @DbPrincipal SYSNAME = N'public' AS RETURN 0""",
    """CREATE PROCEDURE [sys].[sp_releaseapplock] @Resource NVARCHAR(255), @LockOwner VARCHAR(32) = 'Transaction', @DbPrincipal SYSNAME = N'public' AS RETURN 0""",
    "CREATE TABLE [sys].[databases] (name SYSNAME NOT NULL, compatibility_level TINYINT NOT NULL, is_read_committed_snapshot_on BIT NULL)",
    "CREATE TABLE [sys].[objects] (name SYSNAME NOT NULL, object_id INT NOT NULL, schema_id INT NOT NULL)",
    "CREATE TABLE [sys].[indexes] (object_id INT NOT NULL, name SYSNAME NULL, is_disabled BIT NULL)",
    "CREATE TABLE [sys].[dm_tran_database_transactions] (transaction_id BIGINT NOT NULL, database_id INT NOT NULL, database_transaction_begin_time DATETIME NULL)",
    "CREATE TABLE [sys].[dm_tran_session_transactions] (session_id INT NOT NULL, transaction_id BIGINT NOT NULL)",
    "CREATE TABLE [sys].[dm_exec_sessions] (session_id SMALLINT NOT NULL, program_name NVARCHAR(128) NULL, status NVARCHAR(30) NOT NULL)",
    """CREATE TABLE [sys].[dm_exec_requests] (session_id SMALLINT NOT NULL, database_id SMALLINT NOT NULL, wait_type NVARCHAR(60) NULL,
    wait_time INT NOT NULL, blocking_session_id SMALLINT NULL)""",
)]
# DacFx knows them from a file that is not in the package, and reports each use.
OF_SERVER = re.compile(r"sp_getapplock|sp_releaseapplock|databases\]|compatibility_level|is_read_committed_snapshot_on|"
                       r"\[sys\]\.\[(objects|indexes|dm_[a-z_]+)\]")


@dataclass(frozen=True)
class Finding:
    tool: str
    file: str
    line: int
    message: str
    name: str = ""
    quote: str = ""

    def __str__(self):
        where = f" [{self.name}: {self.quote}]" if self.name else ""
        return f"{self.file}:{self.line}: {self.tool}: {self.message}{where}"


def finding(tool, batch, line, message):
    return Finding(tool, batch.file, batch.at(line), message, batch.name, batch.quote(line))


# ---- ScriptDom: grammar, and what its trees show ----


def parsed(text):
    return ScriptDom.TSql150Parser(True).Parse(StringReader(text), None)


FRAGMENT = clr.GetClrType(ScriptDom.TSqlFragment)
PARTS = {}


def parts(node):
    """The nodes directly below one."""
    kind = node.GetType()
    if kind.FullName not in PARTS:
        PARTS[kind.FullName] = [p for p in kind.GetProperties() if holds_nodes(p)]
    for p in PARTS[kind.FullName]:
        value = p.GetValue(node)
        if value is not None:
            yield from value if p.PropertyType.IsGenericType else [value]


def holds_nodes(p):
    kind = p.PropertyType
    if p.GetIndexParameters().Length:
        return False
    return FRAGMENT.IsAssignableFrom(kind.GetGenericArguments()[0] if kind.IsGenericType else kind)


def walk(tree):
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node, node.GetType().Name
        todo.extend(parts(node))


def free_variables(text):
    """The variables that a text uses and does not declare: its parameters."""
    used, own, of_callee = {}, set(), set()
    tree, _ = parsed(text)
    for node, kind in walk(tree) if tree is not None else ():
        if kind == "VariableReference":
            used[node.StartOffset] = node.Name[1:]
        elif kind in ("DeclareVariableElement", "DeclareTableVariableBody"):
            own.add(node.VariableName.Value[1:].lower())
        elif kind == "ExecuteParameter" and node.Variable is not None:
            of_callee.add(node.Variable.StartOffset)
    names = {name.lower(): name for offset, name in used.items() if offset not in of_callee}
    return sorted(name for lower, name in names.items() if lower not in own)


def grammar(batches):
    for batch in batches:
        tree, errors = parsed(batch.text)
        for e in errors:
            yield finding("ScriptDom", batch, e.Line, e.Message)
        if tree is None or errors.Count:
            continue
        for node, kind in walk(tree):
            if kind == "ExecutableStringList":
                for text in node.Strings:
                    yield from grammar([Batch(batch.file, batch.at(node.StartLine), text.Value, batch.name)])
            for message in faults_of(node, kind):
                yield finding("trees", batch, node.StartLine, message)


def faults_of(node, kind):
    """What the grammar allows and the server refuses."""
    if kind == "InsertSpecification" and node.Columns.Count:
        for width in widths(node.InsertSource):
            if width not in (None, node.Columns.Count):
                yield f"an INSERT of {node.Columns.Count} columns gets {width}"
    elif kind == "BinaryQueryExpression":
        left, right = width_of(node.FirstQueryExpression), width_of(node.SecondQueryExpression)
        if None not in (left, right) and left != right:
            yield f"{node.BinaryQueryExpressionType} of {left} columns and {right}"
    elif kind == "OutputIntoClause" and node.IntoTableColumns.Count not in (0, node.SelectColumns.Count):
        yield f"OUTPUT of {node.SelectColumns.Count} columns INTO {node.IntoTableColumns.Count}"
    elif kind == "NamedTableReference":
        yield from conflicts({str(h.HintKind).upper() for h in node.TableHints})


def widths(source):
    kind = source.GetType().Name
    if kind == "SelectInsertSource":
        yield width_of(source.Select)
    elif kind == "ValuesInsertSource":
        for row in source.RowValues:
            yield row.ColumnValues.Count


def width_of(query):
    kind = query.GetType().Name
    if kind == "QueryParenthesisExpression":
        return width_of(query.QueryExpression)
    if kind == "BinaryQueryExpression":
        return width_of(query.FirstQueryExpression)
    stars = [e for e in query.SelectElements if e.GetType().Name == "SelectStarExpression"]
    return None if stars else query.SelectElements.Count


GRAINS = {"PAGLOCK", "NOLOCK", "READCOMMITTEDLOCK", "ROWLOCK", "TABLOCK", "TABLOCKX"}
LEVELS = {"HOLDLOCK", "NOLOCK", "READCOMMITTED", "READUNCOMMITTED", "REPEATABLEREAD", "SERIALIZABLE", "SNAPSHOT"}


def conflicts(hints):
    for group in (GRAINS, LEVELS):
        if len(hints & group) > 1:
            yield f"the hints {' and '.join(sorted(hints & group))} exclude each other: error 1047"
    against = hints & {"HOLDLOCK", "NOLOCK", "READUNCOMMITTED", "SERIALIZABLE", "SNAPSHOT"}
    if "READPAST" in hints and against:
        yield f"READPAST with {' and '.join(sorted(against))}: error 650"


# ---- SqlParser: what each name is bound to ----


def empty_server():
    make = System.Activator.CreateInstance(clr.GetClrType(MetadataFactory), True)
    server = make.Server.Create("server", CollationInfo.Default)
    for name in ("master", "outmill"):
        database = make.Database.Create(server, name, CollationInfo.Default)
        database.CompatibilityLevel, database.DefaultSchemaName = DatabaseCompatibilityLevel.Version150, "dbo"
        for schema in ("dbo", "sys"):
            database.Schemas.Add(make.Schema.Create(database, schema))
        server.Databases.Add(database)
    return server


def provider_of(server):
    """A class that provides nothing but the server. The base class is abstract in members that a
    Python class cannot implement, so the class is emitted."""
    from System.Reflection import AssemblyName, BindingFlags, CallingConventions, FieldAttributes, MethodAttributes, TypeAttributes
    from System.Reflection.Emit import AssemblyBuilder, AssemblyBuilderAccess, OpCodes

    base, inner = clr.GetClrType(MetadataProviderBase), BindingFlags.Instance | BindingFlags.Public | BindingFlags.NonPublic
    assembly = AssemblyBuilder.DefineDynamicAssembly(AssemblyName("tsql"), AssemblyBuilderAccess.Run)
    kind = assembly.DefineDynamicModule("tsql").DefineType("OneServer", TypeAttributes.Public, base)
    held = kind.DefineField("Held", clr.GetClrType(System.Object), FieldAttributes.Public | FieldAttributes.Static)
    for abstract in (m for m in base.GetMethods(inner) if m.IsAbstract):
        types = System.Array[System.Type]([p.ParameterType for p in abstract.GetParameters()])
        method = kind.DefineMethod(abstract.Name, MethodAttributes.Public | MethodAttributes.Virtual, abstract.ReturnType, types)
        code = method.GetILGenerator()
        if abstract.Name == "get_Server":
            code.Emit(OpCodes.Ldsfld, held)
            code.Emit(OpCodes.Castclass, abstract.ReturnType)
        elif abstract.ReturnType != clr.GetClrType(System.Void):
            code.Emit(OpCodes.Ldnull)
        code.Emit(OpCodes.Ret)
        kind.DefineMethodOverride(method, abstract)
    code = kind.DefineConstructor(MethodAttributes.Public, CallingConventions.Standard, System.Type.EmptyTypes).GetILGenerator()
    code.Emit(OpCodes.Ldarg_0)
    code.Emit(OpCodes.Call, next(c for c in base.GetConstructors(inner) if not c.GetParameters().Length))
    code.Emit(OpCodes.Ret)
    made = kind.CreateTypeInfo().AsType()
    made.GetField("Held").SetValue(None, server)
    return System.Activator.CreateInstance(made)


def binding(batches):
    batches = SERVER + [b for b in batches if not b.text.startswith("GRANT ")]
    options = ParseOptions("GO", True, DatabaseCompatibilityLevel.Version150, TransactSqlVersion.Version150)
    results = List[ParseResult]()
    for batch in batches:
        results.Add(Parser.Parse(batch.text, options))
    BinderProvider.CreateBinder(provider_of(empty_server())).Bind(results, "outmill", BindMode.Build)
    for batch, result in zip(batches, results):
        for e in result.Errors:
            # Build mode leaves out SET and IF outside procedures, and says so.
            if "not supported in a data-tier application" not in e.Message:
                yield finding("SqlParser", batch, e.Start.LineNumber, e.Message)


# ---- DacFx: the model of a database ----

NO_DEFINITION = re.compile(r"(\s|--[^\n]*\n)*(SET|IF|EXEC)\s")
CREATES = re.compile(r"CREATE (?:UNIQUE |CLUSTERED )*\w+ (?:\[dbo\]\.)?\[([^\]]+)\]")


def model(batches, version):
    tool = f"DacFx {version}"
    database, taken = empty_model(version), []
    for batch in batches:
        if NO_DEFINITION.match(batch.text):
            continue
        try:
            database.AddObjects(batch.text)
            taken.append(batch)
        except System.Exception as e:
            yield finding(tool, batch, 1, " ".join(e.Message.split()))
            # A model that has refused something takes no more.
            database = empty_model(version)
            for before in taken:
                database.AddObjects(before.text)
    for message in database.Validate():
        if not OF_SERVER.search(message.Message):
            yield finding(tool, *place(batches, message.Message), f"{message.Prefix}{message.Number}: {message.Message}")


def empty_model(version):
    database = TSqlModel(getattr(SqlServerVersion, version), TSqlModelOptions())
    database.AddObjects("CREATE ROLE [outmill];")
    return database


def place(batches, message):
    """DacFx gives no line: take the first that has the last name of the message, in the definition that it names."""
    names = re.findall(r"\[([^\]]+)\]", message) + re.findall(r"column (\S+) could", message)
    last = names[-1].rpartition(".")[2] if names else ""
    named = [b for b in batches for c in [CREATES.search(b.text)] if c and c[1] in names]
    for batch in named + list(batches) if last else []:
        for line, text in enumerate(batch.text.splitlines(), 1):
            if last in text:
                return batch, line
    return (named or [Batch("the schema", 1, "")])[0], 1


# ---- all ----

VERSIONS = ("Sql150", "SqlAzure")


def check(batches):
    """The findings of all tools, once each, and what is no fault."""
    seen, excused = {}, []
    for found in [grammar(batches), binding(batches), *(model(batches, v) for v in VERSIONS)]:
        for f in found:
            why = next((why for text, why in NO_FAULTS.items() if text in f.message), None)
            if why:
                excused.append(f"no fault: {f}: {why}")
            else:
                seen.setdefault((f.tool.split()[0], f.file, f.line, f.message), f)
    return list(seen.values()), excused
