"""Usage: python .ci/tsql FOLDER-OF-MICROSOFT'S-TOOLS [check|self-test]; .ci/sql calls it."""
import os
import sys
import time
from pathlib import Path


def main(folder, what=""):
    started = time.time()
    import host
    host.start(Path(folder))
    import batches
    import faults
    import tools

    root = Path.cwd()
    of = [*batches.program(root, tools.free_variables), *batches.documented(root)]
    failed = 0
    if what in ("", "check"):
        findings, excused = tools.check(of)
        for line in [*excused, *findings]:
            print(line)
        print(f"{len(of)} batches, {len(findings)} faults, {time.time() - started:.0f} s")
        failed += len(findings) + (not of)
    if what in ("", "self-test"):
        copy, planted = faults.plant(of)
        findings, _ = tools.check(copy)
        missed = list(faults.unreported(planted, findings))
        for fault in missed:
            print(f"not found: {fault.what}: {fault.file}: {fault.new}")
        if missed:
            print("what was found:", *findings, sep="\n")
        print(f"self-test: {len(planted) - len(missed)} of {len(planted)} planted faults found")
        copy, names = faults.misspell(of)
        text = "\n".join(f.message for f in tools.binding(copy))
        unbound = [place for name, place in names.items() if f"'{name}'" not in text]
        for place in unbound:
            print("not bound:", *place)
        print(f"self-test: {len(names) - len(unbound)} of {len(names)} misspelt columns found, one in each statement")
        failed += len(missed) + len(unbound)
    sys.stdout.flush()
    os._exit(failed > 0)  # because threads of .NET go on


main(*sys.argv[1:])
