"""Things to play with: what they say is what the models say, and the script shows it."""

import itertools
import json
import random
import re
import shutil
import subprocess
import time
import zlib
from base64 import b64decode
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from helpers import play
from helpers.base.images import picture_bundle
from helpers.base.machine import ROOT
from helpers.make.kernels import notebook_paths
from helpers.play.banks import PLACES, READS, banks_scene, play_banks
from helpers.play.fragments import INSTRUCTIONS, M, N, fragments_scene
from helpers.play.occupancies import occupancy_scene, play_occupancy
from helpers.play.ring import SHOWN, busy_share, play_ring, ring_scene, ring_steps
from helpers.play.sectors import offsets_of, play_sectors
from helpers.play.softmax import ROWS, THREADS, online_run, softmax_scene
from helpers.play.stalls import play_stalls, schedule, stalls_scene
from helpers.play.thing import Control, Scene, Thing
from helpers.tests.legible import illegible
from helpers.trace import model, occupancy
from helpers.trace.picture import figure_of
from helpers.trace.squares import Drawing

LARGEST = 25_000  # bytes of a thing's HTML
THINGS = {name: getattr(play, name)() for name in play.__all__}
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
every_thing = pytest.mark.parametrize("thing", THINGS.values(), ids=THINGS)

# As much of a browser as the script needs; prints what every position shows.
STUB = """
class Element {
  constructor(tag) { this.tag = tag; this.style = {}; this.attributes = {}; this.children = []; }
  appendChild(child) { this.children.push(child); return child; }
  append(...children) { this.children.push(...children); }
  setAttribute(name, value) { this.attributes[name] = value; }
  remove() { this.isGone = true; }
  after(player) { document.player = player; }
  closest() { return null; }
  querySelector() { return this.title; }
  querySelectorAll() { return this.paragraphs; }
}
const root = new Element("div");
root.title = new Element("b");
root.title.textContent = "title";
root.paragraphs = [new Element("p"), new Element("p")];
const document = {
  currentScript: {parentElement: root},
  createElement: (tag) => new Element(tag),
};
const ready = SCRIPT
ready.then(() => {
  const [row, image, words] = document.player.children;
  const inputs = row.children.map((label) => label.children.find((c) => c.onchange || c.oninput));
  const sizes = inputs.map((input) => input.max === undefined
    ? input.children.length : input.max + 1);
  const shown = [];
  const visit = (i) => {
    if (i === inputs.length) {
      const [kind, svg] = [image.src.slice(0, 19), image.src.slice(19)];
      shown.push([kind, decodeURIComponent(svg), image.alt, words.textContent]);
      return;
    }
    for (let value = 0; value < sizes[i]; value++) {
      inputs[i].value = `${value}`;
      (inputs[i].oninput ?? inputs[i].onchange)();
      visit(i + 1);
    }
  };
  const first = words.textContent;
  visit(0);
  const gone = root.paragraphs.every((paragraph) => paragraph.isGone);
  const names = row.children.map((label) => label.children[0].trim());
  const values = inputs.map((input) => input.attributes["aria-valuetext"] ?? null);
  const keeps = inputs.every((input) => "data-lm-suppress-shortcuts" in input.attributes);
  process.stdout.write(JSON.stringify({
    keeps, first, shown, gone, names, values, player: document.player.attributes,
  }));
}).catch((error) => { console.error(error); process.exit(1); });
"""


def script_of(thing):
    return re.search("<script>(.*)</script>", thing.html(), re.S)[1]


@every_thing
def test_a_thing_is_small_and_needs_no_network(thing):
    html = thing.html()
    assert len(html.encode()) <= LARGEST
    assert not re.search(r"https?:|<link|src=|@import|fetch", html)


@every_thing
def test_without_scripts_there_is_a_picture_and_the_sentence(thing, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda what, **_: shown.append(what))
    thing._ipython_display_()
    picture, player = shown
    assert picture.alt == repr(thing) == player["text/plain"]
    assert thing.start.sentence in picture.alt
    left = re.sub("<script>.*</script>", "", player["text/html"], flags=re.S)
    assert not re.search("<(button|input|select)", left)
    assert "where scripts run" in left


@every_thing
def test_what_is_drawn_can_be_read(thing):
    for scene in [thing.start, *random.sample(thing.scenes, 2)]:
        assert not illegible(figure_of(scene.drawing)), scene.sentence


@every_thing
def test_controls_have_labels_and_a_place_to_begin(thing):
    labels = [control.label for control in thing.controls]
    assert len(set(labels)) == len(labels) and all(labels)
    for control in thing.controls:
        assert len(control.values) == len(control.shown) > 1
        assert 0 <= control.start < len(control.values)
    sizes = {(scene.drawing.width, scene.drawing.height) for scene in thing.scenes}
    assert len(sizes) == 1, "what lies below it would jump"


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
@every_thing
def test_the_script_shows_every_position_as_python_has_it(thing, tmp_path):
    file = tmp_path / "player.mjs"
    file.write_text(STUB.replace("SCRIPT", script_of(thing).strip()), encoding="utf-8")
    done = subprocess.run(["node", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["first"] == thing.start.sentence and said["gone"]
    assert said["names"] == [control.label for control in thing.controls]
    last = [control.shown[-1] if control.slides else None for control in thing.controls]
    assert said["values"] == last, "what a screen reader says of a slider"
    assert said["player"] == {"role": "group", "aria-label": "title"}
    assert said["keeps"], "JupyterLab would take the arrow keys"
    assert len(said["shown"]) == len(thing.scenes)
    for shown, scene in zip(said["shown"], thing.scenes, strict=True):
        sentence = scene.sentence
        assert shown == ["data:image/svg+xml,", scene.drawing.svg(), sentence, sentence]


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_the_script_draws_all_that_a_drawing_has(tmp_path):
    def scene(which):
        drawing = Drawing(90, 70)
        drawing.box(3, 5, 40, 30, "white", "black", 2, "4 2", 10)
        drawing.box(4, 6, 1, 1)
        drawing.text(40.5, 9 + which, "a < b & \"c\" > 'd'", 11)
        return Scene([drawing, Drawing(90, 70)], ["it is ", which * "\\ </script>"])

    thing = Thing("a <b>", [Control("which", (0, 1), ("no", "yes"))], scene)
    test_the_script_shows_every_position_as_python_has_it(thing, tmp_path)
    assert thing.html().count("</script>") == 1 and "a &lt;b&gt;" in thing.html()


def unpacked(html):
    """Return a thing's HTML with its data as they are: packed, they depend on zlib."""
    packed = re.search('atob\\("(.*?)"\\)', html)[1]
    return html.replace(packed, zlib.decompress(b64decode(packed)).decode())


def cells_of(name):
    """Return the cells of the course that show a thing."""
    for path in notebook_paths():
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and re.search(rf"^{name}\(", source, re.M):
                yield cell


@pytest.mark.parametrize("name", THINGS)
def test_the_course_shows_it_as_it_is(name):
    (cell,) = cells_of(name)
    picture, player = cell["outputs"]
    stored = "".join(player["data"]["text/html"])
    assert unpacked(stored) == unpacked(THINGS[name].html()), "run its cell again"
    assert picture["metadata"]["image/png"]["alt"] == repr(THINGS[name])


def on_the_site(thing, folder):
    """Return the HTML of a cell that shows a thing, as the site has it."""
    pytest.importorskip("nbconvert", reason="the site is made with nbconvert")
    from nbformat import v4

    from helpers.make.site import formulas
    from helpers.make.site.cells import notebook_html
    from helpers.make.site.plan import Entry, Plan
    from helpers.make.site.prose import Prose

    image, about = picture_bundle(figure_of(thing.start.drawing), repr(thing))
    player = {"text/html": thing.html(), "text/plain": repr(thing)}
    outputs = [
        v4.new_output("display_data", image, metadata=about),
        v4.new_output("display_data", player),
    ]
    notebook = v4.new_notebook(cells=[v4.new_code_cell("play()", outputs=outputs)])
    entry = Entry("a.html", "a", Path("notebooks/a.ipynb"))
    prose = Prose(Plan(folder, [entry], []), entry, "notebooks", formulas.as_written)
    return notebook_html(notebook, prose)


@pytest.mark.skipif(CHROMIUM is None, reason="needs the program chromium")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_moving_a_control_changes_the_sentence_in_chromium(theme, tmp_path):
    move = """<script>
    addEventListener("error", (e) => { document.title = "error: " + e.message; });
    setTimeout(() => {
      const found = [...document.querySelectorAll(".outputs")].map((outputs) => {
        const words = outputs.querySelector("[aria-live]");
        const said = [words.textContent];
        for (const control of outputs.querySelectorAll("select, input")) {
          control.value = control.value == 0 ? 1 : 0;
          control.dispatchEvent(new Event(control.tagName === "SELECT" ? "change" : "input"));
          said.push(words.textContent);
        }
        const stills = [...outputs.querySelectorAll("img")].filter((i) => !i.closest("[role]"));
        return {
          said,
          drawn: outputs.querySelector("[role=group] img").naturalWidth,
          stills: stills.map((still) => getComputedStyle(still).display),
        };
      });
      document.title = JSON.stringify(found);
    }, 2000);
    </script>"""
    page = tmp_path / "page.html"
    style = (ROOT / "helpers/make/site/templates/style.css").as_uri()
    cells = "".join(on_the_site(thing, tmp_path) for thing in THINGS.values())
    page.write_text(
        f'<!doctype html><html data-theme="{theme}"><meta charset="utf-8"><title>x</title>'
        f'<link rel="stylesheet" href="{style}">{cells}{move}</html>',
        encoding="utf-8",
    )
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += [f"--user-data-dir={tmp_path}", "--dump-dom", "--virtual-time-budget=6000"]
    command += ["--disable-background-networking", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True)
    title = unescape(re.search("<title>(.*?)</title>", done.stdout)[1])
    for thing, found in zip(THINGS.values(), json.loads(title), strict=True):
        assert found["said"][0] == thing.start.sentence and len(set(found["said"])) > 1
        assert found["stills"] == ["none"] and found["drawn"] == thing.start.drawing.width


def test_it_is_made_while_one_waits():
    start = time.perf_counter()
    for make in THINGS:
        getattr(play, make)().html()
    assert time.perf_counter() - start < 5 * len(THINGS)


def positions(thing):
    return list(itertools.product(*(control.values for control in thing.controls)))


# ---- what each of them says, against the models


def test_the_sectors_are_those_of_the_addresses():
    thing = play_sectors()
    for shape, stride, start, size in positions(thing):
        x, y = np.arange(32) % shape[0], np.arange(32) // shape[0]
        offsets = size * (2048 * y + start + stride * x)
        assert offsets.tolist() == offsets_of(shape, stride, start, size)
        said = thing.scene_at(shape, stride, start, size).sentence
        touched = model.sectors(offsets.tolist(), size)
        assert touched == len(set(offsets // 32))
        lines = len(set(offsets // 128))
        assert f"touch {touched} sector" in said and f"in {lines} line" in said
        assert f"{model.ideal_sectors(offsets.tolist(), size)} would do" in said


def test_the_drawing_has_the_lanes_and_the_sectors_it_tells_of():
    scene = play_sectors().scene_at((4, 8), 2, 1, 4)
    words = [text[2] for text in scene.drawing.texts]
    assert [word for word in words if word.isdigit()] == [f"{lane}" for lane in range(32)]
    assert "touch 8 sectors in 8 lines, 4 would do" in scene.sentence
    assert "of the 256 bytes that are moved 50% are used" in scene.sentence


def test_the_banks_are_those_of_the_words():
    thing = play_banks()
    for place, read, k in positions(thing):
        words = [place(*read(lane, k)) for lane in range(32)]
        assert len(set(words)) == 32, "no two lanes at one word"
        turns = model.wavefronts([4 * word for word in words], 4)
        banks = [word % 32 for word in words]
        assert turns == max(map(banks.count, banks))
        said = banks_scene(place, read, k).sentence
        assert said.startswith(f"{turns} wavefront") and f"in {len(set(banks))} bank" in said


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_tile_is_stored_without_two_elements_at_one_word(place):
    words = {place(row, col) for row in range(32) for col in range(32)}
    assert len(words) == 32 * 32 and min(words) == 0


def test_what_the_text_asks_of_the_banks():
    """Padding and swizzling serve rows and columns; each is worse at something."""

    def turns(place, read, k=0):
        return int(banks_scene(PLACES[place], READS[read], k).sentence.split()[0])

    for stored in ("a pitch of 33", "swizzled"):
        assert turns(stored, "a row") == turns(stored, "a column") == 1
    assert (turns("plain", "a row"), turns("plain", "a column")) == (1, 32)
    assert turns("swizzled", "a diagonal") == 32 and turns("plain", "a diagonal") == 1
    assert turns("a pitch of 33", "a diagonal") == 2
    assert turns("a pitch of 40", "four rows of 8") == 1
    assert turns("a pitch of 36", "eight rows of 4") == 1
    for stored in ("plain", "a pitch of 33", "swizzled"):
        assert turns(stored, "four rows of 8") == 4 and turns(stored, "eight rows of 4") > 1


def test_what_fits_is_what_the_model_of_occupancy_says():
    thing = play_occupancy()
    for chip, threads, registers, kb in random.sample(positions(thing), 200):
        said = occupancy_scene(chip, threads, registers, kb).sentence
        found = occupancy(chip, threads, 1024 * kb, registers)
        if not found.blocks:
            assert "the launch fails" in said
            continue
        warps, blocks = re.match(r".*: (\d+) of \d+ warps, (\d+) block", said).groups()
        assert (int(warps), int(blocks)) == (found.warps, found.blocks)
        assert said.startswith(f"{100 * found.fraction:.3g}% occupancy")
        assert all(name in said for name in found.limiters)


def test_what_the_text_asks_of_occupancy():
    def percent(*values):
        return float(occupancy_scene(*values).sentence.split("%")[0])

    assert (percent("H200", 256, 64, 0), percent("H200", 256, 32, 0)) == (50, 100)
    assert percent("H200", 256, 64, 48) == 50 > percent("H200", 256, 64, 64)
    assert percent("H200", 256, 40, 0) == 75 > percent("H200", 1024, 40, 0) == 50


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_fragments_are_those_of_the_cpu_backend(tmp_path):
    """Its matrix_places.h says where each element is; its products are right with that."""
    prints = [
        f"for (int lane = 0; lane < 32; lane++) for (int i = 0; i < {count}; i++) {{"
        f" auto at = cuda_on_cpu::place_in_{call}(lane, i);"
        f' std::printf("%d %d\\n", at.row, at.col); }}'
        for K, packed in ((what.K, what.packed) for what in INSTRUCTIONS.values())
        for count, call in (
            (M * K // 32, f"A<{M}, {K}, {packed}>"),
            (K * N // 32, f"B<{K}, {packed}>"),
            (M * N // 32, f"C<{M}, {N}>"),
        )
    ]
    source, program = tmp_path / "places.cpp", tmp_path / "places"
    header = ROOT / "helpers/cuda_on_cpu/include/cuda_on_cpu/matrix_places.h"
    source.write_text(f'#include <cstdio>\n#include "{header}"\nint main() {{ {"".join(prints)} }}')
    subprocess.run(["g++", "-std=c++17", source, "-o", program], check=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    ours = [
        f"{row} {col}"
        for instruction in INSTRUCTIONS.values()
        for name in "ABC"
        for lane in range(32)
        for row, col in instruction.places(name, lane)
    ]
    assert said.split("\n")[:-1] == ours


@pytest.mark.parametrize("instruction", INSTRUCTIONS.values(), ids=INSTRUCTIONS)
def test_each_element_is_with_one_lane_and_sums_need_what_is_framed(instruction):
    shapes = {"A": (M, instruction.K), "B": (instruction.K, N), "C": (M, N)}
    for name, (rows, cols) in shapes.items():
        held = [place for lane in range(32) for place in instruction.places(name, lane)]
        assert sorted(held) == list(itertools.product(range(rows), range(cols)))
    for lane, element in itertools.product(range(32), range(4)):
        row, col = instruction.places("C", lane)[element]
        rows = {n for n in range(32) if row in [r for r, _ in instruction.places("A", n)]}
        cols = {n for n in range(32) if col in [c for _, c in instruction.places("B", n)]}
        said = fragments_scene(instruction, lane, element).sentence
        assert f"row {row}, column {col}: that row of A is with lanes {min(rows)} to" in said
        assert f"to {max(rows)}, that column of B with lanes {min(cols)} to {max(cols)}." in said
        assert len(rows) == len(cols) == 4


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_online_softmax_is_that_of_the_definition(row, threads):
    run = online_run(row, threads)
    for thread, reads in enumerate(run.reads):
        mine = row[thread::threads]
        assert len(reads) == len(mine)
        for step, (column, largest, total, _, term) in enumerate(reads, 1):
            assert row[column] == mine[step - 1] and largest == max(mine[:step])
            assert total == sum(2.0 ** (number - largest) for number in mine[:step])
            said = softmax_scene(row, threads, step).sentence
            assert f"Thread {thread} reads {row[column]}: largest {largest:g}, sum" in said
            assert f"+ {term:.6g} = {total:.6g}." in said
    total = sum(2.0 ** (number - max(row)) for number in row)
    ends = [softmax_scene(row, threads, step).sentence for step in (run.steps + 1, 9)]
    assert ends[0] == ends[1]
    assert ends[0].startswith(f"The row's largest is {max(row)}, its sum {total:.6g}")


def test_what_the_text_asks_of_the_online_softmax():
    grown = {
        name: int(re.search(r"(\d+) made a maximum", softmax_scene(row, 1, 9).sentence)[1])
        for name, row in ROWS.items()
    }
    assert grown["rising: 0 to 7"] == 7 and grown["falling: 7 to 0"] == 0
    assert softmax_scene(ROWS["all the same: 4"], 2, 4).sentence.count("= 4.") == 2


def test_the_ring_is_that_of_notebook_10b():
    """Its cell has the model in eight lines; here each step's times are kept as well."""
    path = ROOT / "notebooks/10b_wgmma_and_tma.ipynb"
    cells = {cell["id"]: cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]}
    told: dict = {}
    exec("".join(cells["10b-model"]["source"]), told)
    for stages, latency, work in positions(play_ring()):
        share = told["busy_share"](stages, latency, work)
        assert busy_share(stages, latency, work) == share
        said = ring_scene(stages, latency, work).sentence
        assert f"run {share:.0%} of the time" in said
        needed = int(re.search(r"(\d+) stages? would", said)[1])
        assert told["busy_share"](needed, latency, work) > 0.98
        assert needed == 1 or told["busy_share"](needed - 1, latency, work) <= 0.98
        assert abs(needed - (latency + work) / work) < 1


def test_no_stage_of_the_ring_has_two_tiles_and_products_do_not_overlap():
    for stages, latency, work in positions(play_ring()):
        steps = ring_steps(stages, latency, work, 40)
        for before, step in itertools.pairwise(steps):
            assert before.end <= step.begin
        for before, step in zip(steps, steps[stages:], strict=False):
            assert before.end == step.asked < step.here <= step.begin < step.end
        drawn = ring_steps(stages, latency, work, SHOWN // work + 2)
        assert drawn[-1].end > SHOWN, "the drawing goes to its end"


def test_what_the_text_asks_of_the_ring():
    assert busy_share(4, 900, 256) < 0.9 < 0.98 < busy_share(4, 900, 300)
    assert f"{256 / 1156:.0%} of" in ring_scene(1, 900, 256).sentence


def test_the_scheduler_keeps_littles_law():
    """Instructions on the way = those issued a tick × latency, but no more than one a tick."""
    for warps, latency, chains in positions(play_stalls()):
        ran = schedule(warps, latency, chains)
        assert ran.share == pytest.approx(min(1, warps * chains / latency), abs=0.01)
        said = stalls_scene(warps, latency, chains).sentence
        assert said.startswith(f"The scheduler issues in {ran.share:.0%} of the ticks.")
        assert f"are {warps * chains}; Little's law asks for {latency}," in said


def test_a_warp_waits_for_its_results():
    for warps, latency, chains in positions(play_stalls()):
        ran = schedule(warps, latency, chains)
        for warp in range(warps):
            ticks = [tick for tick, who in enumerate(ran.issued) if who == warp]
            behind = zip(ticks, ticks[chains:], strict=False)
            assert all(later - tick >= latency for tick, later in behind)
        for who, able in zip(ran.issued, ran.ready, strict=True):
            assert who not in able and (who is not None or not able)
