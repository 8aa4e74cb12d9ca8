"""The model of wrong labels: class densities, label noise, votes, copies. Training, audits and corrected scores use it."""
