import signal

from hypothesis import settings

# A job in the background of a shell ignores Ctrl-C, and so does whatever it starts; the commands under test must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples are drawn from a fixed seed, so a red run can be repeated; machines are shared, so no deadline.
settings.register_profile("airprune", deadline=None, derandomize=True)
settings.load_profile("airprune")
