"""docs/adding-a-model.md and docs/models.md say what is there."""

from pathlib import Path

from parkway import models
from parkway.models import FAMILIES, olmo2

DOCS = Path(__file__).parents[2] / "docs"


def test_the_family_that_is_added_is_the_one_in_the_tree() -> None:
    source = Path(olmo2.__file__).read_text()
    told = (DOCS / "adding-a-model.md").read_text()
    assert f"```python\n{source}```" in told
    assert f"the file has {len(source.splitlines())} lines" in told


def test_no_family_is_long() -> None:
    folder = Path(models.__file__).parent
    names = {family.__module__.rpartition(".")[2] for family in FAMILIES.values()}
    assert len(names) == len(FAMILIES)
    assert all(len((folder / f"{name}.py").read_text().splitlines()) < 150 for name in names)


def test_every_family_is_listed() -> None:
    told = (DOCS / "models.md").read_text()
    assert all(f"`{name}`" in told for name in FAMILIES)
