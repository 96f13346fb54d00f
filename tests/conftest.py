from hypothesis import settings

# Examples are drawn from a fixed seed, so a red run can be repeated; machines are shared, so no deadline.
settings.register_profile("airprune", deadline=None, derandomize=True)
settings.load_profile("airprune")
