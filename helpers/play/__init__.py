"""Things to play with in a notebook and on the site: move a control, and the picture answers.

thing       a thing: its controls, what is seen at each position, and how it shows itself
player.js   the script that makes the controls, and draws what Python worked out

One module for each thing; every number comes from the course's own models:
    sectors     block shape and stride against sectors
    banks       padding and swizzling against banks
    occupancies what a block takes against what an SM has
    fragments   which lane holds what for mma.sync
    softmax     the online softmax, number by number
    ring        stages of a pipeline
    stalls      warps of a scheduler, tick by tick
"""

from helpers.play.banks import play_banks
from helpers.play.fragments import play_fragments
from helpers.play.occupancies import play_occupancy
from helpers.play.ring import play_ring
from helpers.play.sectors import play_sectors
from helpers.play.softmax import play_online_softmax
from helpers.play.stalls import play_stalls

__all__ = [
    "play_banks",
    "play_fragments",
    "play_occupancy",
    "play_online_softmax",
    "play_ring",
    "play_sectors",
    "play_stalls",
]
