"""Logistic regression of scikit-learn, evaluated on clients."""
