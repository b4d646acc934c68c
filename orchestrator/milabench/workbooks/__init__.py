"""Reports and comparisons as workbooks of Excel (.xlsx)."""
