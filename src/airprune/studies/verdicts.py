"""A verdict as reports and pages show it: the colour of its badge, and a sign for those who see no colour."""

from __future__ import annotations

from airprune.studies.claims import Verdict

KINDS = {Verdict.HOLDS: "good", Verdict.PARTLY: "fair", Verdict.FAILS: "bad", Verdict.UNDECIDED: "open"}
SIGNS = {Verdict.HOLDS: "✓", Verdict.PARTLY: "◐", Verdict.FAILS: "✗", Verdict.UNDECIDED: "?"}
