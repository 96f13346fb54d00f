"""Clients that remember: a counter and the last model live in Context.state."""
