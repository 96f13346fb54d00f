"""What every component is: its name, options and slots, what it may know of the model, and the lists it stands in.

component     name, summary, options, slots; the shape of a model as components know it
layers        where the prunable weights lie
units         neurons and channels, and the rows and columns that go with each
registry      lists of components that anybody can extend
choice        sections of a scenario in which components are chosen by name
"""
