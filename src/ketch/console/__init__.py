"""The console: pages for a browser beside a running broker, on its HTTP port.

What the pages show is read by `ketch.views`; the console never asks Redis itself. What they change goes to the broker
as a request of Kafka's protocol (`console.actions`), so it is checked, stored and logged as a client's. It knows
neither the broker nor the port: `console.sources.Sources` is all that it is given. It costs nothing while nobody looks:
there is no task and no timer but those of pages that are open.

- `app` has the table of pages, and what they share; `guard` decides who may see them and what a browser may do.
- `pages/` has a file for each group of pages, `templates/` their HTML, `static/` what the browser loads beside it.
- `render` turns dataclasses into HTML: everything is escaped, and bytes become text in one place (`texts`).
"""
