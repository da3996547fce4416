"""The mutants themselves: faults that compile, differ, and stand where they should."""

import pytest

from tests.mutants import faults, modules, runs
from tests.mutants.faults import ROOT, Mutant, mutants, planted, sample

pytestmark = pytest.mark.skipif(
    not (ROOT / "policies").is_dir(), reason="run away from a checkout"
)
CODE = '''"""Words: 1 < 2."""
def half(é: int = 3) -> int:
    """1 + 1"""
    if not é < 4 and é:
        raise ValueError(f"{é + 1}")
    return "é", é + 1
    return None
'''


@pytest.fixture
def made(tmp_path, monkeypatch):
    """All mutants of a small file, and its text."""
    monkeypatch.setattr(faults, "ROOT", tmp_path)
    (tmp_path / "code.py").write_text(CODE)
    return mutants("code.py", ())


def test_every_kind_of_fault_is_made_and_nothing_else(made):
    assert [(m.line, m.old, m.new) for m in made] == [
        (2, "3", "(4)"),
        (4, "not é < 4 and é", "(not é < 4 or é)"),
        (4, "not é < 4", "(é < 4)"),
        (4, "é < 4", "(é <= 4)"),
        (4, "é < 4", "(é >= 4)"),
        (4, "4", "(5)"),
        (6, 'return "é", é + 1', "return None"),
        (6, "é + 1", "(é - 1)"),
        (6, "1", "(2)"),
    ]


def test_a_fault_is_planted_where_it_stands(made):
    changed = [planted(mutant, CODE) for mutant in made]
    assert len({CODE, *changed}) == len(made) + 1
    for mutant, text in zip(made, changed, strict=True):
        lines = zip(CODE.splitlines(), text.splitlines(), strict=True)
        (where,) = [i for i, (old, new) in enumerate(lines, 1) if old != new]
        assert where == mutant.line
        assert CODE.splitlines()[where - 1][mutant.column - 1 :].startswith(mutant.old)


def test_a_larger_sample_holds_a_smaller():
    file = "perc/step.py"
    assert sample(file, (), 20, seed=1)[:5] == sample(file, (), 5, seed=1)
    assert sample(file, (), 5, seed=1) != sample(file, (), 5, seed=2)
    assert set(sample(file, (), 0, seed=1)) == set(mutants(file, ()))


def test_the_fixed_list_is_up_to_date():
    """Each place is in its file once, each fault compiles, each test file exists."""
    listed = modules.named()
    assert len(set(map(str, listed))) == len(listed) > 60
    for mutant in listed:
        text = planted(mutant, (ROOT / mutant.file).read_text())
        compile(text, mutant.file, "exec")
        files = [test.split("::")[0] for test in mutant.tests if ".py" in test]
        assert files and all((ROOT / file).exists() for file in files)


def test_every_module_of_the_rooms_has_tests():
    found = dict(modules.modules())
    for folder in ("policies", "perc/select"):
        for path in (ROOT / folder).glob("[!_]*.py"):
            assert any(".py" in test for test in found[f"{folder}/{path.name}"])


def test_results_survive_and_say_when_they_are_stale(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "ROOT", tmp_path)
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "test_code.py").write_text("one")
    one = Mutant("code.py", 4, "4", "5", CODE.index("4"), 1, ("test_code.py",))
    two = one._replace(new="6")
    results = runs.Results(tmp_path / "results.json")
    results.note(one, "killed", 1.0)
    results.note(two, "survived", 2.0)
    again = runs.Results(tmp_path / "results.json")
    assert again.of(one) == ("killed", 1.0) and again.of(two) == ("survived", 2.0)
    (tmp_path / "test_code.py").write_text("two")
    assert again.of(one) == ("killed", 1.0) and again.of(two) is None
    (tmp_path / "code.py").write_text(CODE + "\n")
    assert again.of(one) is None


def test_a_fault_is_killed_survives_or_times_out(tmp_path, monkeypatch):
    """In a copy: the file itself stays as it is."""
    root = tmp_path / "root"
    (root / "tests" / "mutants").mkdir(parents=True)
    (root / "tests" / "mutants" / "profile.py").write_text("")
    (root / "code.py").write_text("x = 3\n")
    monkeypatch.setattr(runs, "ROOT", root)
    test = "import pathlib, time\nexec(pathlib.Path('code.py').read_text())\n"
    test += "def test_x():\n    time.sleep(60 * (x == 9))\n    assert x in (3, 4)\n"
    (root / "test_code.py").write_text(test)
    trees = runs.Trees(tmp_path / "copies", tmp_path / "programs", 1)
    fault = Mutant("code.py", 1, "3", "4", 4, 5, ("test_code.py",))
    for new, limit_s, outcome in [
        ("4", 60, "survived"),
        ("5", 60, "killed"),
        ("9", 5, "timed out"),
        ("3", 60, "survived"),
    ]:
        assert trees.try_out(fault._replace(new=new), limit_s)[0] == outcome
    assert (root / "code.py").read_text() == "x = 3\n"
