"""Tests of what the front end is told of executed bytecode, for every Python that is installed:
plain asserts, as not all of them have pytest. `scripts/test_watch.sh` builds `watch_events` and runs this."""
import difflib
import gc
import glob
import os
import sys
import threading
import traceback

import watch_events

VERSION = "%d.%d" % sys.version_info[:2]
HAS_MONITORING = sys.version_info >= (3, 12)
HERE = os.path.dirname(os.path.abspath(__file__))


def made(source, **names):
    exec(compile(source, "snippet", "exec"), names)
    return names["step"]


def log(step, *replaced):
    lines, result, raised, is_complete = watch_events.log(step, "snippet", *replaced)
    assert is_complete
    return lines, result, raised


def cases():
    with open(os.path.join(HERE, "cases.txt")) as file:
        text = "\n" + file.read()
    for part in text.split("\n== ")[1:]:
        name, rest = part.split("\n", 1)
        source, expected = rest.split("\n--\n")
        yield name, source, [line for line in expected.splitlines() if line]


def for_this_version(lines):
    for line in lines:
        if line.startswith("["):
            versions, line = line[1:].split("] ", 1)
            if VERSION not in versions.split():
                continue
        if VERSION != "3.10" or not line.startswith("enter "):
            yield line


def expect(name, lines, expected):
    difference = "\n".join(difflib.unified_diff(expected, lines, "expected", "seen", lineterm=""))
    assert lines == expected, f"{name}:\n{difference}"


def test_what_steps_execute():
    for name, source, expected in cases():
        lines = log(made(source))[0]
        if not any("GiveOut" in line for line in expected):
            lines = [line for line in lines if not line.startswith("GiveOut")]
        expect(name, lines, list(for_this_version(expected)))


def test_the_result_is_that_of_an_unwatched_call():
    for name, source, _ in cases():
        def outcome(call):
            try:
                return repr(call())
            except Exception as error:
                return type(error).__name__
        watched = log(made(source))
        assert outcome(made(source)) == (watched[2] or repr(watched[1])), name


def test_a_step_that_ran_often_before():
    source = """
rate = 2
class M:
    def get(self, n): return self.n + n
m = M()
m.n = 3
def step():
    t = 0
    for i in range(3): t += m.get(i) * rate
    return t
"""
    first = log(made(source))
    step = made(source)
    for _ in range(2000):
        step()
    assert log(step) == first
    assert log(step) == first
    assert step() == first[1]


def test_more_names_than_one_byte_counts():
    stores = "".join(f"  n.a{i} = {1000 + i}\n" for i in range(300))
    lines, result, _ = log(made(f"class Names: pass\nn = Names()\ndef step():\n{stores}  return n.a299\n"))
    load = "LoadGlobal n -> <Names>"
    expected = [line for i in range(300) for line in (load, f"StoreAttribute a{i} <Names>, {1000 + i}")]
    expected += [load, "LoadAttribute a299 <Names> -> 1299"]
    expect("names", [line for line in lines if line != "enter step"], expected)
    assert result == 1299


def test_jumps_farther_than_one_byte_counts():
    adds = "      n += low\n" * 300
    step = made(f"low = 1\ndef step():\n  n = 0\n  for i in (1, 2):\n    if low:\n{adds}  return n + low\n")
    lines, result, _ = log(step)
    assert result == 601
    assert [line for line in lines if line.startswith("Next")] == [
        "Next <tuple_iterator> -> 1", "Next <tuple_iterator> -> 2", "Next <tuple_iterator> -> nothing"]
    assert lines[-1] == "Binary 600, 1 -> 601"


def test_results_are_replaced():
    source = """
rate = 41
class Model:
    kind = 41
    def __init__(self): self.rate = 41
    def get(self): return 41
class Child(Model):
    def above(self): return super().kind
child = Child()
held = {"n": 41}
def make():
    kept = 41
    def read(): return kept
    return read
read = make()
def step():
    return (rate, child.rate, child.get(), child.above(), held["n"], read(), abs(-41), max([41], key=abs),
            40 + len("a"), [x for x in (41,)])
"""
    _, result, _ = log(made(source), 41, 42)
    assert result == (42,) * 9 + ([42],), result
    references = sys.getrefcount(None)
    values = 10**9, 10**9 + 1
    step = made("value = 10**9\ndef step(): return value + 0\n")
    counts = [sys.getrefcount(value) for value in values]
    for _ in range(100):
        assert log(step, *values)[1] == values[1]
    assert [sys.getrefcount(value) for value in values] == counts
    assert abs(sys.getrefcount(None) - references) < 50


def test_where_frames_end():
    lines = log(made("""
def awaited(n, stop=-1):
    def inner(): return n
    if n == stop: raise ValueError(n)
    return inner() if n == 0 else awaited(n - 1, stop)
def awaited_and_caught(n):
    try: awaited(n, 1)
    except ValueError: return 5
class Stop(BaseException): pass
def awaited_name(*, name):
    raise Stop
def step():
    awaited(1)
    awaited_and_caught(2)
    list(map(awaited, [0]))
    [n for n in [1]]
    try: awaited_name(name=3)
    except Stop: pass
    return 1
"""))[0]
    expect("ends", [line for line in lines if line.startswith(("begin", "leave"))], [
        "begin awaited 1", "begin awaited 0", "leave", "leave",
        "begin awaited_and_caught 2", "begin awaited 2", "begin awaited 1", "leave", "leave", "leave",
        "begin awaited 0", "leave", "begin awaited_name 3", "leave"])


def test_lines_of_tracebacks():
    source = """def inner():
    n = 1
    return n + ""
def step():
    try:
        inner()
    except TypeError as e:
        return e.__traceback__.tb_lineno, e.__traceback__.tb_next.tb_lineno
"""
    assert log(made(source))[1] == made(source)() == (6, 3)


def test_other_threads_are_not_watched():
    step = made("""
rate = 2
def work(): return rate
def step():
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return work()
""", threading=threading)
    lines, _, _ = log(step)
    assert lines.count("LoadGlobal rate -> 2") == 1, lines


def test_two_threads_are_watched():
    source = "def down(n): return n if n < 1 else down(n - 1) + n\ndef step(): return down(60)\n"
    shared = made(source)
    alone = log(shared)
    seen = []
    both = threading.Barrier(2)

    def work():
        for _ in range(20):
            both.wait()
            seen.append(log(shared))
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 40 and all(each == alone for each in seen)


def test_nothing_is_left_behind():
    step = made("rate = 2\ndef inner(): return rate\ndef step(): return inner() + 1\n")
    step()
    code = step.__code__
    inner = step.__globals__["inner"].__code__
    count = sys.getrefcount(code), sys.getrefcount(inner)
    for _ in range(3):
        log(step)
    assert (sys.getrefcount(code), sys.getrefcount(inner)) == count
    assert sys.gettrace() is None
    if not HAS_MONITORING:
        return
    monitoring = sys.monitoring
    assert all(monitoring.get_tool(i) is None for i in range(6))
    step()
    import opcode
    instrumented = {number for name, number in opcode.opmap.items() if name.startswith("INSTRUMENTED")}
    for each in (code, inner):
        assert not instrumented & set(each._co_code_adaptive[::2])
    for i in range(6):
        monitoring.use_tool_id(i, "test")
        assert monitoring.get_local_events(i, code) == 0 and monitoring.get_events(i) == 0
        assert monitoring.register_callback(i, monitoring.events.INSTRUCTION, None) is None
        monitoring.free_tool_id(i)


def test_no_references_are_kept():
    source = dict((name, source) for name, source, _ in cases())
    step = made(source["slices"])
    for _ in range(20):
        step.__globals__["items"] = [1, 2, 3, 4]
        log(step)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(300):
        step.__globals__["items"] = [1, 2, 3, 4]
        log(step)
    gc.collect()
    assert len(gc.get_objects()) - before < 50


def traced(step):
    seen = []

    def tracer(frame, event, _):
        if frame.f_code.co_filename == "snippet":
            seen.append((event, frame.f_code.co_name, frame.f_lineno))
        return tracer
    sys.settrace(tracer)
    try:
        result = step()
    finally:
        sys.settrace(None)
    return seen, result


def test_a_tracer_of_the_programs():
    source = """
rate = 2
def inner(n):
    if n: return rate
    raise ValueError
def step():
    try:
        n = [inner(i) for i in (1, 0)]
    except ValueError:
        n = 5
    return n
"""
    alone = traced(made(source))
    if not HAS_MONITORING:
        try:
            traced(lambda: log(made(source)))
        except RuntimeError as error:
            assert "debugger or coverage" in str(error)
        else:
            raise AssertionError("the tracer was put aside")
        return
    step = made(source)
    events, (lines, result, _) = traced(lambda: log(step))
    assert [each for each in events if each[1] != "<module>"] == alone[0] and result == alone[1]
    assert lines == log(made(source))[0]


def test_a_step_that_sets_a_tracer():
    step = made("""
import sys
rate = 2
def inner():
    sys.settrace(lambda *a: None)
    n = rate
    sys.settrace(None)
    return n
def step():
    return inner() + rate
""")
    lines, _, _, is_complete = watch_events.log(step, "snippet")
    assert is_complete == HAS_MONITORING
    assert lines.count("LoadGlobal rate -> 2") == (2 if HAS_MONITORING else 0)


def test_other_tools():
    if not HAS_MONITORING:
        return
    monitoring = sys.monitoring
    events = monitoring.events
    source = """
rate = 2
def inner():
    return rate
def step():
    n = 0
    for i in range(3):
        n += inner()
    return n
"""
    expected = log(made(source))

    def watched_by_tool(is_on):
        step = made(source)
        seen = []
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "coverage")

        def line(code, number):
            seen.append((code.co_name, number))
            return monitoring.DISABLE
        monitoring.register_callback(monitoring.COVERAGE_ID, events.LINE, line)
        for code in (step.__code__, step.__globals__["inner"].__code__):
            monitoring.set_local_events(monitoring.COVERAGE_ID, code, events.LINE)
        if is_on:
            assert log(step) == expected
            assert log(step) == expected
        else:
            step()
            step()
        for code in (step.__code__, step.__globals__["inner"].__code__):
            monitoring.set_local_events(monitoring.COVERAGE_ID, code, 0)
        monitoring.register_callback(monitoring.COVERAGE_ID, events.LINE, None)
        monitoring.free_tool_id(monitoring.COVERAGE_ID)
        return seen
    assert watched_by_tool(True) == watched_by_tool(False)


def test_another_tool_that_asks_for_instructions():
    if not HAS_MONITORING:
        return
    monitoring = sys.monitoring
    step = made("rate = 2\ndef step(): return rate\n")
    seen = []
    monitoring.use_tool_id(0, "debugger")
    monitoring.register_callback(0, monitoring.events.INSTRUCTION, lambda code, offset: seen.append(offset))
    monitoring.set_local_events(0, step.__code__, monitoring.events.INSTRUCTION)
    step()
    alone = list(seen)
    seen.clear()
    is_complete = watch_events.log(step, "snippet")[3]
    monitoring.set_local_events(0, step.__code__, 0)
    monitoring.register_callback(0, monitoring.events.INSTRUCTION, None)
    monitoring.free_tool_id(0)
    assert not is_complete and seen == alone


def test_one_place_for_tools_is_left():
    if not HAS_MONITORING:
        return
    for i in (0, 1, 2, 3, 5):
        sys.monitoring.use_tool_id(i, "test")
    assert log(made("rate = 2\ndef step(): return rate\n"))[1] == 2
    for i in (0, 1, 2, 3, 5):
        sys.monitoring.free_tool_id(i)


def test_all_places_for_tools_are_taken():
    if not HAS_MONITORING:
        return
    for i in range(6):
        sys.monitoring.use_tool_id(i, "test")
    try:
        log(made("def step(): pass\n"))
    except RuntimeError as error:
        assert "all places for tools" in str(error)
    else:
        raise AssertionError("watched")
    finally:
        for i in range(6):
            sys.monitoring.free_tool_id(i)


def test_a_step_that_takes_the_tool_away():
    if not HAS_MONITORING:
        return
    step = made("import sys\ndef step():\n  for i in range(6):\n    if sys.monitoring.get_tool(i) == 'steptape':\n"
                "      sys.monitoring.set_events(i, 0)\n      sys.monitoring.free_tool_id(i)\n")
    assert not watch_events.log(step, "snippet")[3]
    assert log(made("rate = 2\ndef step(): return rate\n"))[1] == 2


def test_a_watch_inside_a_watch_is_refused():
    inner = made("def step(): return 1\n")
    step = made("""
def step():
    try:
        return watch(inner, "snippet")
    except RuntimeError as error:
        return str(error)
""", watch=watch_events.log, inner=inner)
    assert "this thread" in log(step)[1]


def codes_of(code):
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from codes_of(constant)


def test_the_depth_of_the_stack_is_known_everywhere():
    folder = os.path.dirname(os.__file__)
    count = 0
    for name in sorted(glob.glob(os.path.join(folder, "*.py")) + glob.glob(os.path.join(folder, "asyncio", "*.py"))):
        with open(name, "rb") as file:
            for code in codes_of(compile(file.read(), name, "exec")):
                count += 1
                assert watch_events.is_sound(code), (name, code.co_name)
    assert count > 5000


def test_there_is_no_unknown_opcode():
    assert watch_events.unknown_opcode() is None


def test_an_unknown_version_is_refused():
    for call in (lambda: watch_events.log(lambda: 1, "snippet"),):
        try:
            call()
        except RuntimeError as error:
            assert "3.10 to 3.13" in str(error), error
        else:
            raise AssertionError("watched")


def main():
    known = (3, 10) <= sys.version_info[:2] <= (3, 13)
    tests = [test_an_unknown_version_is_refused] if not known else [
        each for name, each in sorted(globals().items())
        if name.startswith("test_") and each is not test_an_unknown_version_is_refused]
    failed = 0
    for test in tests:
        try:
            test()
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"{test.__name__} FAILED")
    print(f"Python {sys.version.split()[0]}: {len(tests) - failed} of {len(tests)} passed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
