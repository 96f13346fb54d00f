"""Trained models that come home: signed by the cloud, fetched, verified and swapped by devices, used for predictions.

offers       what is delivered: a manifest, signed with the cloud's key
shelf        the models that a node holds: the current one and the one before it
fetching     a node that is offered a model gets it from its parent
prediction   scores of samples by the current model, without torch where the native kernel can compute them
"""
