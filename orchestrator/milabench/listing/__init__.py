"""What a suite can run, and what each benchmark asks for: `milabench list`."""
