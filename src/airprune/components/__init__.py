"""The base class of all components, the shape of a model as they see it, and the lists they are in.

component     name, summary, options, slots; the shape of a model as components know it
layers        layout of the prunable weights
units         neurons and channels, and the rows and columns that go with each
registry      lists of components that users can extend
choice        sections of a scenario in which components are chosen by name
"""
