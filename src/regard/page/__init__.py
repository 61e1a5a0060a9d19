"""The page that shows a model's inside in a browser: its HTTP interface, its ES modules (web/) and the exported file."""

from pathlib import Path

WEB = Path(__file__).parent / "web"  # index.html, the modules and the styles, as a browser gets them
