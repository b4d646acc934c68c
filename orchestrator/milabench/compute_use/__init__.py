"""How much of its devices a benchmark uses: operations a second, compared with published and measured peaks."""
