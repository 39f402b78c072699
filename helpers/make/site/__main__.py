"""Write the course as a static site into .cache/site: `make site`."""

import sys
import time

from helpers.base.machine import ROOT
from helpers.make.site import build
from helpers.make.site.formulas import FormulasMissing


def main() -> int:
    begin = time.perf_counter()
    plan = build.whole(build.SITE)
    try:
        faults = build.build(plan)
    except FormulasMissing as error:
        print(error)
        return 1
    pages = len(list(plan.folder.rglob("*.html")))
    start = (plan.folder / "index.html").relative_to(ROOT)
    print(f"{pages} pages in {time.perf_counter() - begin:.0f} s: {start}")
    if faults:
        print("\n".join(["These lead nowhere:", *faults]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
