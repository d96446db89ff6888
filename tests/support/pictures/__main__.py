"""Draw all of them."""

from tests.support.pictures import crash_table, house, transaction
from tests.support.readers import SOURCES

FOLDER = SOURCES.parents[1] / "docs" / "pictures"

if __name__ == "__main__":
    for picture in (crash_table, house, transaction):
        name = picture.__name__.rpartition(".")[2]
        (FOLDER / f"{name}.svg").write_text(picture.draw())
