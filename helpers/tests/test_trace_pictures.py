"""Pictures of traced requests show each lane, sector, queue and bar, and say the same in words."""

import random
import re
from base64 import b64decode
from dataclasses import replace

import pytest

from helpers.trace.launch_pictures import draw_lanes, draw_timeline
from helpers.trace.model import ideal_wavefronts, sectors, wavefronts
from helpers.trace.pictures import draw_addresses, draw_banks, draw_lines
from helpers.trace.record import Access, Launch, Line, Request, Stage

LANES = range(32)


def access(*offsets, size=4, operation="load", space="global", array="A"):
    """Make an access with these requests, each a function of the lane or 32 offsets."""
    samples = [
        Request((0, 0, 0), warp, tuple(map(o, LANES)) if callable(o) else tuple(o))
        for warp, o in enumerate(offsets)
    ]
    text = "    total += A[row * K + k];"
    return Access(12, text, operation, space, array, size, len(samples), samples=samples)


def launch(lines=(), stages=()):
    return Launch("k", (2, 1, 1), (64, 1, 1), 0, "simulator", [], list(lines), list(stages))


def texts(picture):
    (ax,) = picture.figure.axes
    return [text.get_text() for text in ax.texts]


def patches(picture, gid):
    (ax,) = picture.figure.axes
    return [patch for patch in ax.patches if patch.get_gid() == gid]


def title(picture):
    return picture.figure.get_suptitle()


def random_offsets(size, step):
    lanes = [step * random.randrange(64) for _ in LANES]
    lanes = [None if random.random() < 0.2 else lane * size for lane in lanes]
    lanes[random.randrange(32)] = 0
    return lanes


# ---- alt text


def test_a_picture_shows_itself_with_its_words():
    picture = draw_lines(access(lambda lane: 4 * lane, array='A<"B">'), "k")
    data, about = picture._repr_mimebundle_()
    assert about["image/png"]["alt"] == data["text/plain"] == picture.alt == repr(picture)
    assert 'load of A<"B">' in picture.alt
    assert b64decode(data["image/png"]).startswith(b"\x89PNG")


def test_a_source_line_may_hold_dollars():
    one = access(lambda lane: 4 * lane)
    one.text = '__asm__("mov.u32 $x, $y_{;");'
    line = Line(3, one.text, 1, 32, 0)
    for picture in (draw_addresses(one, "k"), draw_lanes(launch([line]))):
        assert picture._repr_mimebundle_()


# ---- addresses


def test_addresses_put_each_lane_at_its_byte():
    odd = [100 + 8 * lane if lane % 2 else None for lane in LANES]
    picture = draw_addresses(access(lambda lane: 4 * lane, odd), "matmul_kernel")
    assert "matmul_kernel, line 12: global load of A, 4 bytes a lane" in title(picture)
    first, second = picture.figure.axes
    marks = {(x, y) for line in first.lines for x, y in zip(*line.get_data(), strict=True)}
    assert marks == {(4 * lane, lane) for lane in LANES}
    marks = {(x, y) for line in second.lines for x, y in zip(*line.get_data(), strict=True)}
    assert marks == {(100 + 8 * lane, lane) for lane in LANES if lane % 2}
    assert {text.get_text() for text in second.texts} == {"lane 1", "lane 31"}
    assert first.get_xlim() == second.get_xlim()
    assert "warp 0, 32 lanes at bytes 0 to 127" in picture.alt
    assert "warp 1, 16 lanes at bytes 108 to 351" in picture.alt


def test_a_lane_that_mixes_texels_has_a_mark_for_each():
    more = tuple((lane, 400 + 4 * lane) for lane in range(7))
    mixed = access(lambda lane: 4 * lane if lane < 7 else None, space="texture", array="image")
    mixed.samples = [replace(request, more=more) for request in mixed.samples]
    picture = draw_addresses(mixed, "k")
    (ax,) = picture.figure.axes
    marks = {(x, y) for line in ax.lines for x, y in zip(*line.get_data(), strict=True)}
    assert marks == {(4 * lane + row, lane) for lane in range(7) for row in (0, 400)}
    assert "k, line 12: texture load of image, 4 bytes a lane" in title(picture)
    assert title(picture).endswith("which texels each lane wants, in 1 of 1 request")
    assert ax.get_title(loc="left").endswith("7 lanes with texels")
    assert "byte offset into image, row after row; a GPU" in ax.get_xlabel()
    assert "7 lanes at bytes 0 to 427" in picture.alt


def test_requests_of_one_warp_are_numbered():
    loop = access(*[lambda lane, k=k: 4 * (lane + 32 * k) for k in range(3)])
    loop.samples = [replace(request, warp=0) for request in loop.samples]
    loop.requests = 1024
    picture = draw_addresses(loop, "k")
    titles = [ax.get_title(loc="left") for ax in picture.figure.axes]
    assert titles == [f"request {n}, block (0, 0, 0), warp 0: 32 lanes active" for n in (1, 2, 3)]
    assert title(picture).endswith("where the access of each lane begins, in 3 of 1,024 requests")
    assert "request 3, block (0, 0, 0), warp 0, 32 lanes at bytes 256 to 383" in picture.alt


def test_one_lane_is_singular():
    one = access([None] * 31 + [8])
    assert "warp 0: 1 lane active" in draw_addresses(one, "k").figure.axes[0].get_title(loc="left")
    assert "1 of 1 request" in title(draw_addresses(one, "k"))
    assert "1 lane at bytes 8 to 11" in draw_addresses(one, "k").alt
    assert "1 lane of warp 0 touches 1 sector" in draw_lines(one, "k").alt
    halves = access([8 * lane if lane < 17 else None for lane in LANES], size=8, space="shared")
    assert [text for text in texts(draw_banks(halves, "k")) if "lane" in text] == [
        "lanes 0–15",
        "lane 16",
    ]


def test_groups_of_lanes_have_marks_of_their_own():
    (ax,) = draw_addresses(access(lambda lane: 4 * lane), "k").figure.axes
    assert len({line.get_marker() for line in ax.lines}) == len(ax.lines) == 4


def test_requests_far_apart_begin_at_their_own_byte():
    far = 1 << 20
    picture = draw_addresses(access(lambda lane: 0, lambda lane: far), "k")
    for ax, place in zip(picture.figure.axes, (0, far), strict=True):
        low, high = ax.get_xlim()
        assert low <= place < high < low + 1000


# ---- lines


@pytest.mark.parametrize(
    ("offsets", "size", "moved", "ideal", "used"),
    [
        (lambda lane: 4 * lane, 4, 4, 4, "128 of 128"),
        (lambda lane: 4 * lane + 4, 4, 5, 4, "128 of 160"),
        (lambda lane: 8 * lane, 4, 8, 4, "128 of 256"),
        (lambda lane: 0, 4, 1, 1, "4 of 32"),
        (lambda lane: 16 * lane, 16, 16, 16, "512 of 512"),
        (lambda lane: lane, 1, 1, 1, "32 of 32"),
        (lambda lane: 4 * lane if lane % 2 else None, 4, 4, 2, "64 of 128"),
    ],
)
def test_lines_fill_the_sectors_that_move(offsets, size, moved, ideal, used):
    picture = draw_lines(access(offsets, size=size), "k")
    assert len(patches(picture, "moved")) == moved
    asked = sum(patch.get_width() for patch in patches(picture, "asked"))
    assert asked == size * len({offsets(lane) for lane in LANES} - {None})
    plural = "" if moved == 1 else "s"
    assert f"{moved} sector{plural} moved, {ideal} would do: {used} bytes used" in title(picture)
    assert f"{moved} sector{plural} of 32 bytes" in picture.alt and used in picture.alt


def test_lines_name_the_lanes():
    inactive = [None if lane in (3, 7) else 4 * (lane % 16) for lane in LANES]
    numbers = texts(draw_lines(access(inactive), "k"))
    expected = ["19" if place == 3 else "23" if place == 7 else "×2" for place in range(16)]
    assert sorted(numbers) == sorted(expected)


def test_a_large_stride_leaves_lines_out_and_says_so():
    picture = draw_lines(access(lambda lane: 4096 * lane), "k")
    assert len(patches(picture, "moved")) == 8
    (ax,) = picture.figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()][:3] == ["0", "4,096", "8,192"]
    assert "24 more lines" in ax.get_xlabel()
    assert "32 sectors moved, 4 would do: 128 of 1,024 bytes used" in title(picture)
    assert "in 32 lines" in picture.alt


def test_lines_show_the_request_that_moves_most():
    picture = draw_lines(access(lambda lane: 4 * lane, lambda lane: 64 * lane), "k")
    assert "warp 1: 32 sectors" in title(picture)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_lines_agree_with_the_model(size):
    offsets = random_offsets(size, step=1)
    picture = draw_lines(access(offsets, size=size), "k")
    moved = sectors(offsets, size)
    assert len(patches(picture, "moved")) == moved
    assert title(picture).count(f": {moved} sector") == 1


# ---- banks


def turns(picture):
    """Return the places of the lanes before the banks as {bank: [wavefronts]}."""
    places = {}
    for patch in patches(picture, "turn"):
        bank, wavefront = patch.get_xy()
        places.setdefault(bank, []).append(wavefront)
    return places


def shared(*offsets, **kwargs):
    return draw_banks(access(*offsets, space="shared", array="tile", **kwargs), "k")


def test_a_column_queues_before_one_bank():
    picture = shared(lambda lane: 128 * lane)
    assert turns(picture) == {0: list(LANES)}
    assert texts(picture) == [str(lane) for lane in LANES]
    assert "32 wavefronts, 1 would do" in title(picture)
    assert "the longest queue is 32 at bank 0" in picture.alt


def test_a_broadcast_is_one_turn():
    picture = shared(lambda lane: 4 * (lane // 16))
    assert turns(picture) == {0: [0], 1: [0]}
    assert texts(picture) == ["×16", "×16"]
    assert "1 wavefront, 1 would do" in title(picture)


def test_atomics_take_turns_at_one_word():
    picture = shared(lambda lane: 4 * (lane % 8), operation="atomic")
    assert turns(picture) == {bank: [0, 1, 2, 3] for bank in range(8)}
    assert "4 wavefronts" in title(picture)


@pytest.mark.parametrize(("size", "parts"), [(8, 2), (16, 4)])
def test_wide_accesses_go_in_parts(size, parts):
    picture = shared(lambda lane: size * lane, size=size)
    assert turns(picture) == {bank: list(range(parts)) for bank in range(32)}
    assert f"{parts} wavefronts, {parts} would do" in title(picture)
    names = [text for text in texts(picture) if text.startswith("lanes")]
    assert len(names) == parts and names[-1].endswith("–31")


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("step", [1, 2, 8])
def test_queues_agree_with_the_model(size, step):
    offsets = random_offsets(size, step)
    picture = shared(offsets, size=size)
    height = wavefronts(offsets, size)
    found = re.search(r"(\d+) wavefronts?, (\d+) would do", title(picture))
    assert [int(number) for number in found.groups()] == [height, ideal_wavefronts(offsets, size)]
    assert 1 + max(max(queue) for queue in turns(picture).values()) == height


@pytest.mark.parametrize("draw", [draw_addresses, draw_lines, draw_banks])
def test_without_a_request_there_is_nothing_to_draw(draw):
    for nothing in (access(), access(lambda lane: None)):
        with pytest.raises(ValueError, match="line 12: no request for A was kept"):
            draw(nothing, "k")


# ---- lanes


def test_lanes_are_bars_with_their_numbers():
    lines = [
        Line(3, "    int i = threadIdx.x;", 8, 256, 0),
        Line(4, "    if (i % 2)" + " && true" * 20, 8, 100, 0),
        Line(5, "    never();", 0, 0, 0),
    ]
    picture = draw_lanes(launch(lines))
    (ax,) = picture.figure.axes
    bars = [patch for patch in ax.patches if patch.get_fill()]
    assert [bar.get_width() for bar in bars] == [32, 12.5]
    assert [bool(bar.get_hatch()) for bar in bars] == [False, True]
    assert {"32", "12.5", "8"} <= set(texts(picture))
    sources = [label.get_text() for label in ax.get_yticklabels()]
    assert sources[0] == "  3  int i = threadIdx.x;"
    assert sources[1].startswith("  4  if (i % 2) &&") and sources[1].endswith("…")
    assert "lanes active in 2 lines; not all 32 are in line 4: 12.5." in picture.alt


def test_lanes_that_are_all_active():
    assert "all 32 lanes are active" in draw_lanes(launch([Line(1, "x", 1, 32, 0)])).alt
    with pytest.raises(ValueError, match="no line ran"):
        draw_lanes(launch([]))


# ---- timeline


def test_timeline_puts_requests_between_barriers():
    stages = []
    for warp in range(2):
        stages += [
            Stage(0, warp, 7, "load", "global", 2),
            Stage(0, warp, 8, "load", "global", 1),
            Stage(0, warp, 8, "store", "shared", 3),
            Stage(1, warp, 11, "load", "shared", 12 + warp),
            Stage(2, warp, 14, "atomic", "global", 1),
        ]
    picture = draw_timeline(launch(stages=stages))
    bars = {kind: patches(picture, kind) for kind in ("global load", "shared load", "atomic")}
    assert [len(found) for found in bars.values()] == [2, 2, 2]
    assert not patches(picture, "global store")
    assert {int(bar.get_x()) for bar in bars["shared load"]} == {1}
    widths = [found[1].get_width() for found in bars.values()]
    assert [width / widths[1] for width in widths] == pytest.approx([3 / 13, 1, 1 / 13])
    assert sorted(texts(picture), key=int) == ["1", "1", "3", "3", "3", "3", "12", "13"]
    (ax,) = picture.figure.axes
    stages_named = [label.get_text() for label in ax.get_xticklabels()]
    assert stages_named == ["stage 0\nlines 7–8", "stage 1\nline 11", "stage 2\nline 14"]
    assert len([line for line in ax.lines if line.get_linewidth() > 2]) == 2  # barriers
    assert "stage 0: 6 global load requests, 6 shared store requests" in picture.alt
    assert "stage 1: 25 shared load requests" in picture.alt


def test_timeline_leaves_out_what_has_no_room_and_says_so():
    stages = [Stage(number, warp, 1, "load", "global", 1) for number in range(10) for warp in LANES]
    picture = draw_timeline(launch(stages=stages))
    (ax,) = picture.figure.axes
    assert len(patches(picture, "global load")) == 6 * 8
    assert "4 more stages, 24 more warps" in ax.get_xlabel()
    assert "32 warps in 10 stages" in picture.alt
    with pytest.raises(ValueError, match="did not ask for memory"):
        draw_timeline(launch())


@pytest.mark.parametrize(
    "late", [Stage(6, 0, 3, "store", "global", 9), Stage(0, 8, 3, "atomic", "global", 9)]
)
def test_timeline_explains_only_what_it_draws(late):
    picture = draw_timeline(launch(stages=[Stage(0, 0, 1, "load", "global", 2), late]))
    (legend,) = picture.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["global load"]
    (bar,) = patches(picture, "global load")
    assert bar.get_width() == pytest.approx(0.72)  # the longest of those that are drawn
    assert draw_timeline(launch(stages=[late]))._repr_mimebundle_()
