"""Write all pages."""

from tests.support import configuration, metrics
from tests.support.reference import api, commands, errors

if __name__ == "__main__":
    configuration.write()
    metrics.DOCUMENT.write_text(metrics.document())
    for page in (errors, commands, api):
        page.DOCUMENT.write_text(page.document())
