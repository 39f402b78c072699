"""Many patches, each with a colour of its own."""


class PatchCollection:
    def __init__(self, patches, facecolors, linewidths):
        self._patches = patches
        for patch, colour in zip(patches, facecolors, strict=True):
            patch.fc, patch.lw = colour, linewidths

    def svg(self, x, y):
        return "".join(patch.svg(x, y) for patch in self._patches)
