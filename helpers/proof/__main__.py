"""Count again and write README.md: `make proof`."""

from helpers.proof.table import README, readme

README.write_text(readme())
print(f"wrote {README}")
