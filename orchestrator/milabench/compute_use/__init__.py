"""How much of its devices a benchmark uses: operations a second beside published and measured peaks."""
