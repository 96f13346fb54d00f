"""Models: seen as one flat vector, with torch or without; what computes their gradients and losses.

layout            a model as one flat vector
catalogue         the paper's CNN and its siblings
char_transformer  a small transformer, its training, and adapters on it
adapters          LoRA adapters, and their ranks as units
scores            the scores among the outputs of a language model
names             the catalogue's names, for whatever does without torch
user_modules      a torch module of a user's own, checked before the run
without_torch     the catalogue's models as flat arrays
initial_weights   the weights that torch would sample, without torch
unit_tracing      neurons and channels of a torch module, by following its forward pass
submodule         a torch module with whole units removed
dry_run           whether model, samples and loss fit each other
losses/           what is minimised, and what models are evaluated by
kernels/          what computes gradients
"""
