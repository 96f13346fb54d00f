"""The Deployment page: fleets and runs on real machines below the runs folder, live while they change.

uploads   measured.jsonl as it is drawn: a bounded number of points
picture   a deployment as the page shows it
routes    the addresses

What is counted is counted by `airprune.deployment.watch`, as for `/metrics` and `deploy status`.
"""
