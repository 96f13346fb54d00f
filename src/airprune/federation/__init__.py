"""The steps of a federated round: what devices, edges and the cloud do."""
