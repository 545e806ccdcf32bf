"""Runs the .NET that comes with Microsoft's tools inside this process.

That .NET Core is of 2019, and hostfxr then had no call that clr_loader needs. So
the runtime library is loaded and started here directly, by its three C functions.
"""
import ctypes
import sys
from pathlib import Path

import pythonnet
from clr_loader.ffi import ffi
from clr_loader.types import Runtime, RuntimeInfo


class CoreCLR(Runtime):
    def __init__(self, folder):
        self._clr = ctypes.CDLL(str(folder / "libcoreclr.so"), mode=ctypes.RTLD_GLOBAL)
        self._runtime, self._domain = ctypes.c_void_p(), ctypes.c_uint()
        bridge = Path(pythonnet.__file__).parent / "runtime" / "Python.Runtime.dll"
        trusted = [*sorted(folder.glob("*.dll")), bridge]
        settings = {
            b"TRUSTED_PLATFORM_ASSEMBLIES": ":".join(map(str, trusted)).encode(),
            b"APP_PATHS": bytes(folder),
            b"NATIVE_DLL_SEARCH_DIRECTORIES": bytes(folder) + b"/",
        }
        strings = ctypes.c_char_p * len(settings)
        self._call("coreclr_initialize", sys.executable.encode(), b"tsql", len(settings), strings(*settings), strings(*settings.values()),
                   ctypes.byref(self._runtime), ctypes.byref(self._domain))

    def _call(self, function, *args):
        code = getattr(self._clr, function)(*args)
        if code:
            raise RuntimeError(f"{function} returns 0x{code & 0xFFFFFFFF:08x}")

    def _get_callable(self, assembly_path, typename, function):
        pointer = ctypes.c_void_p()
        self._call("coreclr_create_delegate", self._runtime, self._domain, Path(assembly_path).stem.encode(),
                   typename.partition(",")[0].encode(), function.encode(), ctypes.byref(pointer))
        return ffi.cast("int(*)(void*, int)", pointer.value)

    def info(self):
        return RuntimeInfo(kind="CoreCLR", version="2.2", initialized=True, shutdown=False)

    def shutdown(self):
        """The process ends with the runtime in it."""


def start(folder):
    pythonnet.load(CoreCLR(folder))
    import clr

    for name in ["TransactSql.ScriptDom", "SqlParser", "Dac", "Dac.Extensions"]:
        clr.AddReference("Microsoft.SqlServer." + name)
