import signal
import sys

import pytest
import torch
from hypothesis import settings

from airprune import registration

# A job in the background of a shell ignores Ctrl-C, and so does whatever it starts; the commands under test must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples are drawn from a fixed seed, so a red run can be repeated; machines are shared, so no deadline.
settings.register_profile("airprune", deadline=None, derandomize=True)
settings.load_profile("airprune")


@pytest.fixture
def one_thread():
    """Torch's threads cost more than they save on batches this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def unregistered():
    """Leaves the registries as a fresh process has them."""
    yield
    for registry in registration.registries().values():
        for component in registry.added:
            registry.remove(component.name)
    for module in registration._FILES:
        sys.modules.pop(module, None)
    registration._FILES.clear()
    registration._ORIGINS.clear()
