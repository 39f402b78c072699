"""What one page of the course says of another is there: numbers, sections, words and files.

Checked is what can be without a false alarm. A sentence that sends to the right page for a word
that stands there, and says something wrong of it, passes: that is left to whoever reads it.
"""

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.make.kernels import kernel_sources, notebook_paths

NOTEBOOKS = notebook_paths()
FOLDER = NOTEBOOKS[0].parent
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

# A notebook's number. Bare, 10 to 17 are any numbers: they count where the sentence says more.
SURE = r"(?:0\d[bcd]?|1[0-7][bcd])(?!\w|[.,:×/–-]?\d)"
NUMBER = r"(?:0\d[bcd]?|1[0-7][bcd]?)(?!\w|[.,:×/–-]?\d)"
OF = rf"(?:(?:of|from|in|by) notebooks? (?={NUMBER})|(?:of|from|in|by) (?={SURE}))"
NUMBERS = rf"(?P<numbers>{NUMBER}(?:(?:, | and ){NUMBER})*)"
BEHIND = rf"(?:,? \((?:notebooks? )?|, notebooks? |,? {OF}){NUMBERS}"
IN_SECTION = r"(?:,? (?:section |§ ?)(?P<section>\d+))?"
CODE = r"`[^`]+`"
STRESSED = rf"(?:{CODE}|\*\*[^*]+\*\*|\*[^*\s][^*]*\*)"
THREE_WORDS = r"[^\s().,;:]+(?: [^\s().,;:]+){0,2}"

SENT_TO_A_NOTEBOOK = [
    rf"(?P<term>{STRESSED}){BEHIND}{IN_SECTION}(?! had )",  # `clock64` (04)
    rf"\((?P<term>{THREE_WORDS}), (?:notebook )?{NUMBERS}{IN_SECTION}\)",  # (a ticket, 06)
    rf"(?:\b(?=\d+\w)|[Nn]otebook ){NUMBERS}'s (?P<term>{STRESSED})(?P<section>)",  # 04b's `Pack`
]
SENT_TO_A_SECTION = (
    rf"(?P<term>{CODE}|\*\*[^*]+\*\*)(?: \(| of |, | from | in )section (?P<section>\d+)"
)
MORE_OF_IT = (
    r"more (?:of|on|about) (?:it|that|them|this) in (?:notebook |section (?P<section>\d+)|)"
)

SECTION_LIST = r"\d+(?:,? (?:to|and|or) \d+|, \d+(?=[\d ,]* (?:to|and|or) \d))*"
SECTIONS = rf"(?:[Ss]ections (?P<several>{SECTION_LIST})|[Ss]ection (?P<one>\d+))(?![\d.]*\.\d)"
SECTION_OF_ANOTHER = [
    rf"(?P<owner>{NUMBER})(?:'s|,|:)?(?: \()? {SECTIONS}",
    rf"{SECTIONS} of (?:notebook (?P<owner>{NUMBER})|(?P<owner2>{SURE}))",
    rf"(?P<owner>{NUMBER}),? §+ ?(?P<one>\d+)",
]
SMALL_WORDS = set("this that with from have what when which their your more than".split())


@dataclass
class Page:
    """A notebook: its sections by number, and all that stands in its cells."""

    title: str = ""
    sections: dict[str, str] = field(default_factory=dict)
    text: str = ""

    def add(self, kind: str, source: str) -> None:
        self.text += source + "\n"
        self.title = self.title or source.splitlines()[0].removeprefix("# ")
        parts = re.split(r"(?m)^(?=## )", source) if kind == "markdown" else [source]
        for part in parts:
            if heading := re.match(r"## (?:(\d+)\.)?", part):
                self.sections[heading[1] or ""] = ""  # without a number: nobody's section
            if self.sections:
                self.sections[list(self.sections)[-1]] += part + "\n"

    def has(self, term: str, section: str | None = None) -> bool:
        """Return whether code stands here, or each word of a phrase, whatever its ending."""
        text = (self.text if section is None else self.sections.get(section, "")).lower()
        bare = term.strip("`*,.").lower()
        if bare in text or re.split(r"[(<\[]", bare)[0].split(".")[-1] in text:
            return True
        words = [word for word in re.findall(r"[^\W\d_]{3,}", bare) if word not in SMALL_WORDS]
        return "`" not in term and all(word[: min(5, len(word) - 1)] in text for word in words)


@functools.cache
def cells(path: Path) -> list[tuple[str, str]]:
    """Return kind and source of each cell, without hidden comments."""
    stored = json.loads(path.read_text())["cells"]
    sources = [(cell["cell_type"], "".join(cell["source"])) for cell in stored]
    return [(kind, re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)) for kind, text in sources]


@functools.cache
def course() -> dict[str, Page]:
    pages = {}
    for path in NOTEBOOKS:
        page = pages[path.stem.split("_")[0]] = Page()
        for kind, source in cells(path):
            page.add(kind, source)
    return pages


@functools.cache
def owners() -> dict[str, str]:
    """Return the number of the notebook that makes each kernel file."""
    sources = kernel_sources().values()
    return {f"{source.op}.cu": source.notebook.stem.split("_")[0] for source in sources}


def paragraphs(markdown: str) -> Iterator[str]:
    """Return paragraphs and lines of lists and tables, a link to a notebook as its number."""
    prose = re.sub(r"(?ms)^```.*?^```", "", markdown)
    prose = re.sub(rf"\[({NUMBER})[^\]]*\]\(\w+\.ipynb\)", r"\1", prose)
    for paragraph in re.split(r"\n\s*\n|\n(?=[-|#]|\d+\. )", prose):
        yield " ".join(paragraph.split())


def numbers_in(text: str) -> list[str]:
    return re.findall(NUMBER, text)


def asked_sections(match: re.Match) -> list[str]:
    found = match.groupdict()
    return re.findall(r"\d+", found.get("several") or found["one"])


def missing_sections(text: str, here: str, pages: dict[str, Page]) -> Iterator[str]:
    """Return what names a section that its notebook lacks."""
    rest = text
    for pattern in SECTION_OF_ANOTHER:
        for match in re.finditer(pattern, rest):
            owner = match["owner"] or match.groupdict().get("owner2")
            page = pages.get(owner, Page())
            if any(section not in page.sections for section in asked_sections(match)):
                yield f"{match[0]!r}: {owner} has sections {sections_of(page)}"
        rest = re.sub(pattern, "", rest)
    for match in re.finditer(rf"(?<!its ){SECTIONS}|§ ?(?P<sign>\d+)", rest):
        asked = [match["sign"]] if match["sign"] else asked_sections(match)
        if any(section not in pages[here].sections for section in asked):
            yield f"{match[0]!r}: there are {sections_of(pages[here])}"


def sections_of(page: Page) -> str:
    return ", ".join(section for section in page.sections if section)


def missing_terms(text: str, here: str, pages: dict[str, Page]) -> Iterator[str]:
    """Return code and stressed words that are sent to a notebook, or section, without them."""
    sent = [match for form in SENT_TO_A_NOTEBOOK for match in re.finditer(form, text)]
    for match in sent:
        numbers = numbers_in(match["numbers"])
        known = [pages[number] for number in numbers if number in pages]
        if not any(page.has(match["term"], match["section"] or None) for page in known):
            yield f"{match[0]!r}: not there"
    for match in re.finditer(SENT_TO_A_SECTION, text):
        if not pages[here].has(match["term"], match["section"]):
            yield f"{match[0]!r}: not there"


def missing_more(text: str, here: str, pages: dict[str, Page]) -> Iterator[str]:
    """Return where more is promised of what was stressed, by a place that has nothing of it."""
    for match in re.finditer(rf"{MORE_OF_IT}(?P<number>{NUMBER})?", text):
        terms = re.findall(STRESSED, text[: match.start()])
        page = pages.get(match["number"] or here, Page())
        if terms and not any(page.has(term, match["section"]) for term in terms):
            yield f"{match[0]!r}: nothing there of {', '.join(terms)}"


def missing_numbers(text: str, here: str, pages: dict[str, Page]) -> Iterator[str]:
    for match in re.finditer(r"[Nn]otebooks? ((?:\d\d[a-z]?(?:, | and | to |–)?)+)(?!\.?\d)", text):
        for number in re.findall(r"\d\d[a-z]?", match[1]):
            if number not in pages:
                yield f"{match[0]!r}: there is no {number}"


def wrong_owners(text: str, here: str, pages: dict[str, Page]) -> Iterator[str]:
    """Return kernel files that are called the work of a notebook which did not make them."""
    few = r"(?: (?!and |or |than )[\w']+){0,3}"
    file = r"`(?:kernels/)?(?P<file>\w+\.cu)`"
    number = rf"(?:\(|[Nn]otebook |in (?={SURE})|of (?={SURE}))(?P<number>{NUMBER})"
    for pattern in (rf"{file},?{few} {number}", rf"{number}(?:'s)?,?{few} {file}"):
        for match in re.finditer(pattern, text):
            owner = owners().get(match["file"])
            if owner not in (None, match["number"]):
                yield f"{match[0]!r}: {owner} makes it"


CHECKS = (missing_numbers, missing_sections, missing_terms, missing_more, wrong_owners)


def faults(markdown: str, here: str, pages: dict[str, Page]) -> list[str]:
    texts = list(paragraphs(markdown))
    return [fault for check in CHECKS for text in texts for fault in check(text, here, pages)]


@every_notebook
def test_what_is_sent_to_a_notebook_or_section_is_there(path):
    here = path.stem.split("_")[0]
    found = []
    for number, (kind, source) in enumerate(cells(path), 1):
        if kind == "markdown":
            found += [f"cell {number}: {fault}" for fault in faults(source, here, course())]
        else:  # comments, hints, what is printed
            found += [f"cell {number}: {f}" for f in missing_sections(source, here, course())]
    assert not found, "\n".join(found)


@every_notebook
def test_links_to_files_of_the_course_lead_there(path):
    found = []
    for number, (kind, source) in enumerate(cells(path), 1):
        links = re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", source) if kind == "markdown" else []
        for text, target in links:
            if re.match(r"\w+:|#", target):
                continue
            file = target.split("#")[0]
            if not (FOLDER / file).exists():
                found.append(f"cell {number}: no file {file}")
            elif file.endswith(".ipynb") and re.match(NUMBER, text):
                title = course()[file.split("_")[0]].title
                if not title.startswith(" ".join(text.split())):
                    found.append(f"cell {number}: [{text}] is {title!r}")
    assert not found, "\n".join(found)


@every_notebook
def test_what_a_notebook_needs_comes_before_it(path):
    """A later one only where it says which of its sections, or that it can wait."""
    here = path.stem.split("_")[0]
    for text in paragraphs(cells(path)[0][1]):
        needs = re.search(r"\*\*Needs:\*\*(.*?)(?=\*\*|Before:|[.] |$)", text)
        for part in (needs[1] if needs else "").split(";"):
            earlier = re.sub(rf"{NUMBER},? {SECTIONS}", "", part)
            later = [number for number in numbers_in(earlier) if number > here]
            assert not later or "until" in part, part


def test_before_and_next_are_the_neighbours():
    order = [path.stem.split("_")[0] for path in NOTEBOOKS]
    for place, path in enumerate(NOTEBOOKS):
        for _, source in (cells(path)[0], cells(path)[-1]):
            text = " ".join(source.split())
            for way, number in re.findall(rf"\b(Before|Next):?\**:? \[({NUMBER})", text):
                neighbour = place + (1 if way == "Next" else -1)
                assert number == order[neighbour], f"{path.stem}: {way} is {number}"


def test_the_map_stored_in_the_first_notebook_shows_them_all():
    """It is printed when the notebook runs: run it again when another one has come."""
    stored = json.loads(NOTEBOOKS[0].read_text())["cells"]
    shown = [cell["outputs"] for cell in stored if cell["source"] == ["show_progress()"]]
    text = "".join(shown[0][0]["data"]["text/plain"])
    assert [path.stem for path in NOTEBOOKS if path.stem not in text] == []


def small_course() -> dict[str, Page]:
    first, second = Page(), Page()
    first.add("markdown", "# 01 One\n## 1. Grids\nA grid is cut into blocks.\n## 2. Barriers")
    first.add("code", "out = torch.zeros(n)\n__syncthreads();")
    second.add("markdown", "# 02b Two\n## 1. Copies\nCopied by `cp.async`, asynchronously.")
    return {"01": first, "02b": second}


@pytest.mark.parametrize(
    "text",
    [
        "See notebook 03.",
        "See section 3.",
        "The file (sections 1 to 3).",
        "As in 02b, section 2.",
        "As in [02b](02b_two.ipynb) section 2.",
        "It is told in section 2 of notebook 02b.",
        "It is told in 02b §2.",
        "It is fetched by `cp.async` (01).",
        "It is fetched by `cp.async` ([01](01_one.ipynb)).",
        "It is fetched by `cp.async` (notebook 01, section 2).",
        "A `__syncthreads` (01, section 1) comes first.",
        "They are fetched by *asynchronous copies* from notebook 01.",
        "They wait (a barrier, 02b).",
        "Here is 02b's `torch.zeros`.",
        "Here is the `__syncthreads` of section 1.",
        "**Barriers** make them wait; more of that in section 1.",
    ],
)
def test_what_is_not_there_is_found(text):
    assert faults(text, "01", small_course())


def test_what_is_there_passes():
    text = """A barrier (section 2), section 1's grid and **blocks** (section 1), sections 1 to 2;
in 02b, section 1, `cp.async` (02b; [02b](02b_two.ipynb), section 1) or *copies*, asynchronous
(notebook 02b). `torch.zeros(5)` of notebook 01, an *asynchronous copy* (01, 02b), section 1 of
02b, 2.02 of 16 and (16, 8), `x` of 17 rows, section 1, 30 µs, `fence` (01 had none).
**Barriers**: more of that in section 2."""
    assert faults(text, "01", small_course()) == []


def test_a_file_belongs_to_the_notebook_that_makes_it():
    for text in ("`square.cu` (02)", "Notebook 02 ends with `kernels/square.cu`"):
        assert faults(text, "01", course())
    for text in ("`square.cu` (01)", "notebook 01's `square.cu`, and notebook 02"):
        assert not faults(text, "01", course())
