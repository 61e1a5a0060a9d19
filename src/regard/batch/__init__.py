"""`regard map`: a task over files with any number of rows, on one machine or on Ray."""
