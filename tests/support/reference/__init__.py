"""Makes the reference pages from the code: settings, metrics, errors, commands, API.

``python -m tests.support.reference`` writes the first three to docs/, and tests hold each page to
what it makes. Commands and API are made when the site is built (`tests.support.site`).
"""
