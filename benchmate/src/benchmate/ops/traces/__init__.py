"""PyTorch execution traces: recorded, summarised, made into configurations, replayed on any machine."""
