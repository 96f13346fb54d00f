"""All claims: each table and figure has its own beside it, in our words and with the test that decides it from the CSV
files alone."""

from __future__ import annotations

from airprune.studies.paper import bound, errata, fig2, fig3, fig4, fig5, fig6, frozen, table2, to_target
from airprune.studies.paper.claim import PaperClaim

CLAIMS: tuple[PaperClaim, ...] = tuple(
    claim
    for module in (fig2, fig3, table2, fig4, to_target, fig5, fig6, frozen, bound, errata)
    for claim in module.CLAIMS
)
