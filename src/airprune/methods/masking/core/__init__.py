"""From the received model to the weights a device keeps.

importance  scores of weights, Eqs. (1) and (2)
masks       masks of single weights, Eq. (5), in an exact number
structured  masks of whole units, Eq. (3): smaller dense layers
coverage    how many devices kept each weight, Γ* of Theorem 1
"""

from airprune.methods.masking.core.importance import IMPORTANCES, Importance, Probe

__all__ = ["IMPORTANCES", "Importance", "Probe"]
