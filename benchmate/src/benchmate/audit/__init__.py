"""The timing experiment: how warm-up, synchronisation and the clock change the time that a call of a model seems to take."""
