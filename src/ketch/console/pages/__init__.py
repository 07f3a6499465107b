"""The pages of the console: a file for each group of pages, whose functions take the `Site` and a request.

A page asks views, and renders one template with what they return. It does no I/O of its own, holds no state between
requests, and changes nothing; `pages.changes` alone does, through `console.actions`.
"""
