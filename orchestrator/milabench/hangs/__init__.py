"""What hung: the state of a step's processes before a silent step is ended, and the rank that the others wait for."""
