"""Runs apps by `airprune flower`, one after the other: python run_apps.py OUT APP…"""

import sys
from pathlib import Path

from airprune.cli import main

out, *apps = map(Path, sys.argv[1:])
for app in apps:
    if status := main(["flower", str(app), "--out", str(out / app.name), "--engine", "serial"]):
        sys.exit(f"{app.name}: status {status}")
