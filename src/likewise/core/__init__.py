"""What every room uses: types, contracts, errors, similarities, settings of the commands, files, exact ranking, text tables."""
