"""The recipes of the methods, by family."""
