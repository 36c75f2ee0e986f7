"""A small shop: a web page, two workers, and one queue between them.

    make shop          or: python -m examples.shop

An order is charged, its items are packed by several workers at once, and when the last one is
packed the parcel is shipped. Each step is a job. The page shows how far every order has come.

``tasks.py`` has the handlers, ``page.py`` the web application, ``__main__.py`` starts everything.
"""
