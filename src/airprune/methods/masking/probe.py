"""The paper's masks: a device ranks the weights of the model it received and zeroes what does not fit, Eq. (5)."""

from __future__ import annotations

from airprune.methods.masking.base import WHOLE, DeviceView, SubModel
from airprune.methods.masking.core.importance import IMPORTANCES
from airprune.methods.masking.ranking import Ranking, ranked_mask


class Probe(Ranking):
    """The paper's choice, on one minibatch of the dense model."""

    name = "probe"
    summary = "the paper's: each device ranks the received weights and zeroes those that do not fit"
    source = "as published, corrected"

    def choose(self, view: DeviceView) -> SubModel:
        mask = ranked_mask(self, view)
        return WHOLE if mask is None else SubModel(sent=mask, held=mask, moves=mask)

    @property
    def by_data(self) -> bool:
        """Some importances see the received weights alone, or nothing."""
        importance = IMPORTANCES[self.importance]
        return importance.needs_gradient or importance.needs_loss
