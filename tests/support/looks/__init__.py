"""Opens every page of the documentation's site in a browser, and says what a reader could not read.

Run as ``python -m tests.support.looks``; a step of ``make test-full``. ``--pictures FOLDER`` keeps
what each page looks like. It needs Chromium, which it drives by its own protocol over two pipes.
"""
