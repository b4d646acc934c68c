"""A batch scheduler of one machine: its jobs are processes of this user, and what it knows of them is a folder."""
