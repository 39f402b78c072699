"""Count again, break again, and write README.md: `make proof`."""

from helpers.proof import broken
from helpers.proof.table import README, counts

README.write_text(f"{counts()}\n{broken.table()}")
print(f"wrote {README}")
