"""Programs that try to pass a test which their function does not pass; each was tried against a verdict from within.

Every one defines an ``f`` that is not twice its argument, or none.
"""
# ruff: noqa: E501  a program is easier to read in one piece

from __future__ import annotations

WRONG = "\ndef f(x):\n    return 5\n"
LIAR = """
class Liar(BASE):
    __eq__ = __ge__ = __le__ = __contains__ = lambda self, other: True
    __ne__ = __bool__ = lambda self, *other: BASE is not int
    __hash__ = BASE.__hash__
    __sub__ = __rsub__ = __abs__ = lambda self, *other: 0
def f(x): return Liar()
"""
FORGE = """
import os
def forge(verdict):
    for number in range(64):
        for said in (verdict, verdict + b"passed", b'["value", 4]\\n', b"1"):
            try: os.write(number, said)
            except OSError: pass
    os._exit(0)
"""
FORGERIES = {
    # The four that were published against a verdict made in the program's own process.
    "an exception named passed": "raise type('passed' + ' ' * 300, (Exception,), {})",
    "the runner's own names": "import __main__, os\n"
    "os.write(__main__.result, (__main__.nonce + 'passed').encode())\nos._exit(0)",
    "another os.write": "import os\nold = os.write\nos.write = lambda number, text: old(number, text[:32] + b'passed')"
    + WRONG,
    "the caller's frame": "import os, sys\nnames = sys._getframe(1).f_globals\n"
    "os.write(names['result'], (names['nonce'] + 'passed').encode())\nos._exit(0)",
    # Walking to what holds the verdict.
    "every frame": "import sys\nframe = sys._getframe()\nwhile frame:\n    frame.f_globals.update(end=None, passed=True, "
    "verdict='passed', said='')\n    frame = frame.f_back" + WRONG,
    "frames of a call": "import sys\ndef f(x):\n    frame = sys._getframe(1)\n    while frame:\n        "
    "frame.f_locals.update(value=4)\n        frame.f_globals['packed'] = lambda value, depth=0: 5\n        "
    "frame = frame.f_back\n    return 5",
    "garbage collector": "import gc, os\nfor part in gc.get_objects():\n    if isinstance(part, dict) and 'nonce' in part:"
    "\n        os.write(part['result'], (part['nonce'] + 'passed').encode())" + WRONG,
    "what refers to a number": "import gc, sys\nfor part in gc.get_objects():\n    if isinstance(part, dict) and 'ERRORS' in "
    "part:\n        part['ERRORS'].clear()" + WRONG,
    "the interpreter's memory": "import ctypes\nctypes.memmove(id(5) + 24, id(4) + 24, 4)" + WRONG,
    "numbers made equal": "import ctypes\nctypes.memset(id(5), 0, 24)" + WRONG,
    # What runs at odd moments.
    "atexit": "import atexit, os" + FORGE + "atexit.register(forge, b'1')" + WRONG,
    "atexit, and exit": "import atexit, os, sys" + FORGE + "atexit.register(forge, b'1')\nsys.exit(0)",
    "__del__": "import os" + FORGE + "class D:\n    def __del__(self): forge(b'1')\nD()" + WRONG,
    "signal": "import signal" + FORGE + "signal.signal(14, lambda *_: forge(b'1'))\nsignal.setitimer(0, .05)\n"
    "def f(x):\n    while True: pass",
    "trace": "import sys\nsys.settrace(lambda *_: None)\nsys.setprofile(lambda frame, what, value: "
    "frame.f_globals.update(passed=True))" + WRONG,
    "thread": "import threading" + FORGE + "threading.Thread(target=forge, args=(b'1',)).start()" + WRONG,
    "excepthook": "import sys" + FORGE + "sys.excepthook = sys.unraisablehook = lambda *_: forge(b'1')\nraise ValueError",
    # What the tests use.
    "built-ins": "import builtins\nbuiltins.abs = builtins.all = builtins.len = lambda *_: True\n"
    "builtins.AssertionError = type('E', (Exception,), {})" + WRONG,
    "names of built-ins": "abs = all = sorted = isinstance = lambda *_: 4" + WRONG,
    "modules": "import sys, types\nmath = types.ModuleType('math')\nmath.isclose = lambda *a, **k: True\n"
    "sys.modules['math'] = math\nsys.modules['builtins'] = math" + WRONG,
    "check": "def check(candidate): pass\ncandidate = lambda x: 4\n__tests__ = ''" + WRONG,
    "json": "import json\njson.dumps = lambda *_: '[\"value\", true]'" + WRONG,
    # Answers that lie.
    "equal to all": LIAR.replace("BASE", "object"),
    "a number equal to all": LIAR.replace("BASE", "int"),
    "text equal to all": LIAR.replace("BASE", "str"),
    "a dict equal to all": "class Liar(dict):\n    __eq__ = lambda self, other: True\ndef f(x): return Liar()",
    "not a number": "def f(x): return float('nan')",
    "true": "def f(x): return True",
    "an odd class": "class A(type):\n    __instancecheck__ = lambda *_: True\nclass B(metaclass=A): pass\ndef f(x): return B",
    "end of iteration": "def f(x): raise StopIteration",
    "end of a generator": "def f(x): raise GeneratorExit",
    "assertion": "def f(x): raise AssertionError('passed')",
    "exit 0": "def f(x): raise SystemExit(0)",
    "an error that becomes text": "class E(Exception):\n    __str__ = lambda self: 'passed'\nE.__name__ = '1'\ndef f(x): raise E",
    # The end, the streams and the pipe.
    "os._exit": "import os\nos._exit(0)",
    "os._exit in a call": "import os\ndef f(x): os._exit(0)",
    "stdout": "import sys\nprint('1passed')\nsys.stdout.flush()\nsys.__stdout__.write('1')" + WRONG,
    "every open file": FORGE + "forge(b'1')",
    "every open file in a call": FORGE + "def f(x): forge(b'1')",
    "descriptors moved": "import os\nfor a in range(3, 12):\n    try: os.dup2(a, 20 + a), os.dup2(1, a)\n    except OSError: pass"
    + WRONG,
    "answers without end": "import os\ndef f(x):\n    while True: os.write(4, b'1' * 4096)",
    "an answer too large": "def f(x): return '1' * 2**21",
    "an answer too deep": "def f(x):\n    value = []\n    for _ in range(10**5): value = [value]\n    return value",
    "an answer that holds itself": "def f(x):\n    value = []\n    value.append(value)\n    return value",
    "an answer in other words": "import os\ndef f(x): os.write(4, b'{\"passed\": true}\\n')",
    "shared memory": "import mmap, os\nfor n in range(32):\n    try: mmap.mmap(n, 0)[:1] = b'1'\n    except Exception: pass" + WRONG,
    "the other process": "import os\nfor n in range(1, 9):\n    try: os.kill(n, 19)\n    except OSError: pass" + WRONG,
    "another program": "import os, sys\nos.execv('/python/bin/python', ['python', '-c', 'print(1)'])",
}  # fmt: skip
