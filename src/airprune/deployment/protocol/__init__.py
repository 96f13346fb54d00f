"""The contract between nodes; `airprune.proto` is the source, `scripts/protocol` generates the rest."""
