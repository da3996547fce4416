"""The guided tour: every snippet runs and prints what the chapter shows."""

import importlib.util
import re
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guide"
CHAPTERS = sorted(GUIDE.glob("[0-9]*.md"))
LARGEST_BYTES = 60_000
WIDE_EM = 0.6  # of a mean letter, in the widest font that sans-serif stands for
SUBJECTS = (
    "why",
    "cost",
    "paging",
    "sharing",
    "eviction",
    "prediction",
    "compression",
    "tiers",
    "serving",
    "choosing",
)
# Those that run what no snippet runs, and compile little.
DRAWN = ("01-why", "02-cost", "03-paging", "06-prediction", "08-tiers", "10-choosing")

pytestmark = pytest.mark.skipif(not GUIDE.is_dir(), reason="run away from a checkout")


def blocks(chapter: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", chapter.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def pictures():
    """The script that draws, as a module."""
    place = importlib.util.spec_from_file_location("pictures", GUIDE / "pictures.py")
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_the_chapters_are_those_of_the_tour():
    wanted = [f"{at:02}-{name}" for at, name in enumerate(SUBJECTS, 1)]
    assert [chapter.stem for chapter in CHAPTERS] == wanted
    index = (GUIDE / "README.md").read_text()
    assert re.findall(r"\]\(([\w-]+)\.md\)", index) == wanted
    assert "docs/guide" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_snippet_prints_what_the_chapter_shows(chapter, capsys):
    (code,) = blocks(chapter, "python")
    (shown,) = blocks(chapter, "text")
    exec(compile(code, str(chapter), "exec"), {})
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_is_short_and_leads_on(chapter):
    text = chapter.read_text()
    assert len(text.splitlines()) < 90 and "**Try:**" in text or "**Where" in text
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (chapter.parent / target).exists(), target
    assert text.splitlines()[-1].startswith(("Next: ", "Back to "))


def test_every_picture_is_drawn_by_the_script_and_shown(pictures):
    stems = [chapter.stem for chapter in CHAPTERS]
    assert list(pictures.PICTURES) == stems
    assert sorted(path.stem for path in GUIDE.glob("*.svg")) == stems
    for chapter in CHAPTERS:
        picture = chapter.with_suffix(".svg")
        assert f"]({picture.name})" in chapter.read_text()
        assert picture.read_text().startswith("<svg")
        assert picture.stat().st_size < LARGEST_BYTES


@pytest.mark.parametrize("name", DRAWN)
def test_pictures_can_be_drawn_again(pictures, name):
    drawn = pictures.PICTURES[name]()
    assert drawn.to_dict() == pictures.PICTURES[name]().to_dict()


def ends_of_texts(node: xml.Element, at: float = 0.0, turned: bool = False):
    """(left, right, text) of what is written from left to right, as a wide font."""
    moved = node.get("transform", "")
    at += sum(float(x) for x in re.findall(r"translate\((-?[\d.e-]+)", moved))
    turned |= "rotate(-90)" in moved
    if node.tag.endswith("}text") and not turned and node.get("opacity") != "0":
        text = "".join(node.itertext())
        size = float(node.get("font-size", "10px").removesuffix("px"))
        width = WIDE_EM * size * len(text)
        before = {"start": 0.0, "middle": 0.5, "end": 1.0}[node.get("text-anchor", "")]
        yield at - before * width, at + (1 - before) * width, text
    for child in node:
        yield from ends_of_texts(child, at, turned)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_no_word_of_a_picture_is_cut(chapter):
    root = xml.parse(chapter.with_suffix(".svg")).getroot()
    ends = list(ends_of_texts(root))
    assert len(ends) > 5
    width = float(root.get("width", "nan"))
    assert [text for left, right, text in ends if not 0 <= left <= right <= width] == []
