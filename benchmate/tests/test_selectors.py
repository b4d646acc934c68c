"""What ptera would break is refused before anything is rewritten; what it can do works."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest

from benchmate.errors import ProbeError
from benchmate.probes.ptera_streams import find_function, open_stream

# name -> (source, words of the refusal); the table of constructs that were found to break or change the program.
REFUSED = {
    "unpacked": ("def f(xs):\n    a, b = zip(*xs)\n    return a", "unpacking of a value that may not be indexable"),
    "starred": ("def f(t):\n    a, *b = t\n    return a", "starred unpacking"),
    "starred_loop": ("def f(t):\n    for a, *b in t:\n        pass", "a loop target that cannot be rewritten"),
    "attribute_loop": ("def f(o):\n    for o.x in (1, 2):\n        pass", "a loop target that cannot be rewritten"),
    "asynchronous": ("async def f():\n    return 1", "it is async"),
    "lambda": ("f = lambda: 1", "is a lambda"),
    "class": ("class f:\n    pass", "is a class. Probe its __init__"),
    "builtin": ("f = len", "is written in C"),
    "captured": ("def f(x):\n    match x:\n        case [a, _]:\n            return a", "names captured by match"),
    "missing_annotation": (
        "from __future__ import annotations\ndef f(x: Thing) -> int:\n    return 1",
        "annotation names Thing",
    ),
    "evaluated_default": ("def f(x=print('once')):\n    return x", "would be evaluated a second time"),
    "rebound_global": (
        "n = 0\ndef bump():\n    global n\n    n += 1\ndef f():\n    bump()\n    return n",
        "read once: n",
    ),
    "generated": ("def f():\n    yield 1", "a generator function"),
    "sourceless": ("exec('def f(): return 1')", "its source is not available"),
}
IN_CLASS = {
    "private": (
        "class K:\n    def __init__(self):\n        self.__x = 1\n    def f(self):\n        return self.__x",
        "__x",
    ),
    "class_default": ("class K:\n    c = 1\n    def f(self, x=c):\n        return x", "default names c"),
    "column_zero": ('class K:\n    def f(self):\n        return """\nleft"""', "text at column 0"),
}


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def make(source: str):
        name = f"probed_{len(made)}_{tmp_path.name}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        importlib.invalidate_caches()
        made.append(name)
        return importlib.import_module(name)

    yield make
    for name in made:
        sys.modules.pop(name, None)


def probe(selector, env=None, **options):
    fired = []
    recorder = SimpleNamespace(fire=lambda: fired.append(1), failed=fired.append)
    stream = open_stream(selector, recorder, env=env or {}, **options)
    return stream, fired


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_function_that_would_change_is_refused(module, name):
    source, words = REFUSED[name]
    made = module(source)
    with pytest.raises(ProbeError, match=words):
        probe(f"/{made.__name__}/f() as x")


@pytest.mark.parametrize("name", sorted(IN_CLASS))
def test_a_method_that_would_change_is_refused(module, name):
    source, words = IN_CLASS[name]
    made = module(source)
    with pytest.raises(ProbeError, match=words):
        probe(f"/{made.__name__}/K/f() as x")


def test_a_function_inside_a_function_is_refused(module):
    made = module("def f():\n    def g():\n        return 1\n    return g()")
    with pytest.raises(ProbeError, match="is defined inside"):
        probe(f"/{made.__name__}/f/g() as x")


def test_nonlocal_is_refused(module):
    made = module("def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n    return g\ng = f()")
    with pytest.raises(ProbeError, match="nonlocal"):
        probe("g() as x", env={"g": made.g})


def test_a_missing_function_is_an_error_with_similar_names(module):
    made = module("def make_loader():\n    return 1")
    with pytest.raises(ProbeError, match="Did you mean 'make_loader'"):
        probe(f"/{made.__name__}/make_loadr() as x")
    with pytest.raises(ProbeError, match="cannot be imported"):
        probe("/no_such_module_at_all/f() as x")
    stream, _ = probe(f"/{made.__name__}/make_loader > lodr")
    with pytest.raises(ProbeError, match="Cannot find a variable named"):
        stream.__enter__()


ALLOWED = """
    import functools, contextlib
    def plain(x):
        y = x + 1
        a, b = y, x
        return y
    def deco(fn):
        @functools.wraps(fn)
        def inner(*args):
            return fn(*args)
        return inner
    def bare(fn):
        def inner(*args):
            return fn(*args)
        return inner
    @deco
    def wrapped(x):
        y = x + 1
        return y
    @bare
    def hidden(x):
        y = x + 1
        return y
    @functools.lru_cache
    def cached(x):
        y = x + 1
        return y
    def outer(x):
        def pair(t):
            c, *d = t
            return c
        y = pair([x, 0]) + 1
        return y
    class K:
        def method(self, x):
            y = x + 1
            return y
        @staticmethod
        def static(x):
            y = x + 1
            return y
        def sum(self, x):
            y = sum([x, 1])
            return y
"""


@pytest.mark.parametrize("path", ["plain", "wrapped", "hidden", "cached", "outer", "K/method", "K/static", "K/sum"])
def test_a_rewritable_function_is_captured_and_overridden(module, path):
    made = module(ALLOWED)
    stream, fired = probe(f"/{made.__name__}/{path} > y", overridable=True)
    stream["y"].override(lambda y: y * 10)
    owner = made.K() if path.startswith("K") else made
    function = getattr(owner, path.rpartition("/")[2])
    names = set(vars(made))
    with stream:
        assert function(1) == 20
    assert fired == [1]
    left = {name for name in set(vars(made)) - names if name is None or not name.startswith(("_ptera", "__ptera"))}
    assert left == set()
    assert "codefind" not in sys.modules


def test_two_probes_can_share_a_function(module):
    made = module(ALLOWED)
    first, _ = probe(f"/{made.__name__}/plain > y", overridable=True)
    first["y"].override(lambda y: y + 100)
    with first:
        second, seen = probe(f"/{made.__name__}/plain() as r")
        results = second["r"].accum()
        with second:
            assert made.plain(1) == 102
    assert results == [102]
    assert seen == [1]


def test_an_overridden_value_is_not_kept(module):
    import gc
    import weakref

    made = module("class M: pass\ndef make():\n    return M()")
    stream, _ = probe(f"/{made.__name__}/make() as m", overridable=True)
    stream["m"].override(lambda m: m)
    with stream:
        model = made.make()
        seen = weakref.ref(model)
        del model
        gc.collect()
        assert seen() is None


def test_an_error_in_a_subscriber_stays_out_of_the_script(module):
    made = module("def f():\n    x = 1\n    return x")
    stream, fired = probe(f"/{made.__name__}/f > x")
    stream["x"].subscribe(lambda x: 1 / 0)
    with stream:
        assert made.f() == 1
    assert [type(item).__name__ for item in fired] == ["int", "ZeroDivisionError"]


def test_ptera_works_without_ast_str(tmp_path):
    code = """
        import ast, sys
        for name in ("Str", "Num", "Bytes", "NameConstant", "Ellipsis"):
            if name in vars(ast):
                delattr(ast, name)
        if "__getattr__" in vars(ast):
            del ast.__getattr__
        sys.path.insert(0, sys.argv[1])
        from benchmate.probe_registry import Probe
        from benchmate.probes.ptera_streams import open_stream
        stream = open_stream("/probed314/f > x", Probe("x"), env={})
        seen = stream["x"].accum()
        import probed314
        with stream:
            probed314.f()
        print(seen)
    """
    (tmp_path / "probed314.py").write_text("def f():\n    'doc'\n    x: '@Tag' = 3\n    return x\n")
    command = [sys.executable, "-W", "error::DeprecationWarning:ptera", "-c", textwrap.dedent(code), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[3]\n", "")


def test_the_function_behind_decorators_is_found(module):
    made = module(ALLOWED)
    assert find_function(made.__name__, ["hidden"]).__code__.co_name == "hidden"
    assert find_function(made.__name__, ["cached"]).__name__ == "cached"
