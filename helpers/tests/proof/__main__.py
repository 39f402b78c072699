"""Count again, break again, and write README.md: `make proof`."""

from helpers.tests.proof import broken
from helpers.tests.proof.table import README, counts

README.write_text(f"{counts()}\n{broken.table()}")
print(f"wrote {README}")
