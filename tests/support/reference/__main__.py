"""Write the pages that stand in docs/."""

from tests.support import configuration, metrics
from tests.support.reference import access, errors

if __name__ == "__main__":
    configuration.write()
    metrics.DOCUMENT.write_text(metrics.document())
    errors.DOCUMENT.write_text(errors.document())
    access.DOCUMENT.write_text(access.document())
